"""What travels on the bus, as bytes. Decoding trusts nothing: anyone who reaches the broker can publish."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sandloom.contracts.ports import Head
from sandloom.ids import ExecKey

MAX_HEAD_BYTES: Final = 4_096
#: A body of 256 KiB in base64 with room to spare; what is larger goes over the byte channel of the worker.
MAX_REPLY_BYTES: Final = 1_048_576

_SEQ: Final = re.compile(r"[0-9]{1,19}\Z")
_REPLY_CHANNEL: Final = re.compile(r"reply:[0-9a-f]{32}\Z")


class BusMessageInvalid(Exception):
    """The bytes are not a message of this bus."""


def is_reply_channel(name: str) -> bool:
    """Whether ``name`` is a reply channel: nobody gets a worker to publish elsewhere."""
    return _REPLY_CHANNEL.match(name) is not None


def encode_head(key: ExecKey, seq: int, terminal: bool) -> bytes:
    """Five fields with NUL between them, which no name holds: every process decodes the heads of all others."""
    return "\0".join((*key, str(seq), "1" if terminal else "0")).encode()


def decode_head(data: bytes) -> tuple[ExecKey, Head]:
    """Raises ``BusMessageInvalid``."""
    if len(data) > MAX_HEAD_BYTES:
        raise BusMessageInvalid
    try:
        tenant_id, sandbox_id, exec_id, seq, terminal = data.decode().split("\0")
    except ValueError as error:
        raise BusMessageInvalid from error
    if _SEQ.match(seq) is None or terminal not in ("0", "1"):
        raise BusMessageInvalid
    return ExecKey(tenant_id, sandbox_id, exec_id), Head(int(seq), terminal == "1")


def encode_reply(body: Mapping[str, Any]) -> bytes:
    """Raises ``BusMessageInvalid`` for what is not JSON or too large."""
    try:
        data = json.dumps(dict(body), separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise BusMessageInvalid from error
    if len(data) > MAX_REPLY_BYTES:
        raise BusMessageInvalid
    return data


def decode_reply(data: bytes) -> dict[str, Any]:
    """Raises ``BusMessageInvalid``."""
    if len(data) > MAX_REPLY_BYTES:
        raise BusMessageInvalid
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BusMessageInvalid from error
    if not isinstance(document, dict):
        raise BusMessageInvalid
    return document
