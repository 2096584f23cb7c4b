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

_REPLY_CHANNEL: Final = re.compile(r"reply:[0-9a-f]{32}\Z")


class BusMessageInvalid(Exception):
    """The bytes are not a message of this bus."""


def is_reply_channel(name: str) -> bool:
    """Whether ``name`` is a reply channel: nobody gets a worker to publish elsewhere."""
    return _REPLY_CHANNEL.match(name) is not None


def encode_head(key: ExecKey, seq: int, terminal: bool) -> bytes:
    return json.dumps({"key": list(key), "seq": seq, "terminal": terminal}, separators=(",", ":")).encode("ascii")


def decode_head(data: bytes) -> tuple[ExecKey, Head]:
    """Raises ``BusMessageInvalid``."""
    document = _decode(data, MAX_HEAD_BYTES)
    key, seq, terminal = document.get("key"), document.get("seq"), document.get("terminal")
    if not isinstance(key, list) or len(key) != 3 or not all(isinstance(part, str) for part in key):
        raise BusMessageInvalid
    if type(seq) is not int or seq < 0 or type(terminal) is not bool:
        raise BusMessageInvalid
    return ExecKey(*key), Head(seq, terminal)


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
    return _decode(data, MAX_REPLY_BYTES)


def _decode(data: bytes, max_bytes: int) -> dict[str, Any]:
    if len(data) > max_bytes:
        raise BusMessageInvalid
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BusMessageInvalid from error
    if not isinstance(document, dict):
        raise BusMessageInvalid
    return document
