"""Signed requests: who asks, for which tenant, what, and until when.

The wire form is a JSON object with exactly these fields::

    {"v": 1, "key_id": str, "tenant_id": str, "task": str, "args": {…}, "op_id": 32 hex digits,
     "deadline": wall seconds, "reply_to": str | null, "sig": 64 hex digits}

``sig`` is HMAC-SHA256 over the canonical JSON (sorted keys, no spaces, ASCII) of all other fields. ``op_id`` doubles as
the nonce: whoever carries out a request that changes something remembers it until the deadline has passed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandloom.clock import MICROSECONDS, wall_seconds
from sandloom.errors import EnvelopeRefused, OperationExpired, ValidationFailed

VERSION: Final = 1
FLEET_KEY_ID: Final = "fleet"
OPERATOR_KEY_ID: Final = "operator"
REPLY_TASK: Final = "reply"

#: The furthest deadline that is signed or accepted; it bounds how long an ``op_id`` must be remembered.
MAX_TTL_SECONDS: Final = 7 * 86_400.0
#: Wall clocks of two hosts may differ by this much before a far deadline is refused.
CLOCK_SKEW_SECONDS: Final = 300.0

_FIELDS: Final = frozenset({"v", "key_id", "tenant_id", "task", "args", "op_id", "deadline", "reply_to", "sig"})
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,191}\Z")
_OP_ID: Final = re.compile(r"[0-9a-f]{32}\Z")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A shared secret. ``tenant_id`` None may speak for any tenant (fleet and operator)."""

    key_id: str
    secret: bytes = field(repr=False)
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request whose signature, task, tenant and deadline were checked. ``deadline`` is in wall seconds."""

    key_id: str
    tenant_id: str
    task: str
    args: dict[str, Any] = field(repr=False)
    op_id: str
    deadline: float
    reply_to: str | None = None

    @property
    def deadline_us(self) -> int:
        """The deadline in microseconds since the epoch."""
        return int(self.deadline * MICROSECONDS)

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the deadline, never below 0."""
        return max(0.0, self.deadline - wall_seconds())


def new_op_id() -> str:
    """128 random bits: nobody can guess the operation that a process waits for."""
    return secrets.token_hex(16)


def canonical(document: object) -> bytes:
    """The bytes that are signed.

    Raises ``TypeError``, ``ValueError`` or ``RecursionError`` for what is not JSON, NaN and infinities included.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def seal(
    key: SigningKey,
    *,
    tenant_id: str,
    task: str,
    args: dict[str, Any],
    deadline_seconds_from_now: float,
    op_id: str | None = None,
    reply_to: str | None = None,
) -> dict[str, Any]:
    """A signed envelope in wire form. ``ValidationFailed`` when a verifier could not accept it, whatever the key."""
    if not 0 < deadline_seconds_from_now <= MAX_TTL_SECONDS:
        raise ValidationFailed(f"the deadline must lie within {MAX_TTL_SECONDS:.0f} seconds from now")
    body: dict[str, Any] = {
        "v": VERSION,
        "key_id": key.key_id,
        "tenant_id": tenant_id,
        "task": task,
        "args": args,
        "op_id": op_id or new_op_id(),
        "deadline": wall_seconds() + deadline_seconds_from_now,
        "reply_to": reply_to,
    }
    problem = _shape_problem({**body, "sig": "0" * 64})
    if problem:
        raise ValidationFailed(problem)
    try:
        signature = _signature(key, body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationFailed("the arguments are not JSON") from error
    return {**body, "sig": signature}


class Verifier:
    """Opens envelopes that were signed by one of ``keys`` (a mapping by key id, or a look-up)."""

    def __init__(self, keys: Mapping[str, SigningKey] | Callable[[str], SigningKey | None]) -> None:
        self._lookup: Callable[[str], SigningKey | None] = keys.get if isinstance(keys, Mapping) else keys

    def open(self, envelope: object, *, task: str) -> Envelope:
        """The request inside ``envelope``, which must be meant for ``task``.

        Raises ``EnvelopeRefused`` for any shape, key, signature, task or tenant that does not fit, and
        ``OperationExpired`` for a genuine request whose deadline has passed. Whatever the input, nothing else.
        """
        problem = _shape_problem(envelope)
        if problem or not isinstance(envelope, dict):
            raise EnvelopeRefused(problem)
        key = self._lookup(envelope["key_id"])
        if key is None:
            raise EnvelopeRefused("the message names a key that is not known here")
        self._check_signature(key, envelope)
        if envelope["task"] != task:
            raise EnvelopeRefused("the message was signed for another task")
        if key.tenant_id is not None and key.tenant_id != envelope["tenant_id"]:
            raise EnvelopeRefused("the key may not speak for this tenant")
        _check_deadline(envelope["deadline"])
        return Envelope(**{name: value for name, value in envelope.items() if name not in ("v", "sig")})

    @staticmethod
    def _check_signature(key: SigningKey, envelope: dict[str, Any]) -> None:
        body = {name: value for name, value in envelope.items() if name != "sig"}
        try:
            expected = _signature(key, body)
        except (TypeError, ValueError, RecursionError) as error:
            raise EnvelopeRefused("the message is not JSON") from error
        if not hmac.compare_digest(expected, envelope["sig"]):
            raise EnvelopeRefused("the signature does not fit the message")


def fleet_key(secret_key: str) -> SigningKey:
    """The key that the API and the workers of one deployment share."""
    return SigningKey(FLEET_KEY_ID, derived_secret(secret_key, b"sandloom fleet v1"))


def operator_key(token: str) -> SigningKey:
    """The key of whoever holds the operator's token."""
    return SigningKey(OPERATOR_KEY_ID, derived_secret(token, b"sandloom operator v1"))


def derived_secret(secret: str, info: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869) without salt, 32 bytes: one block of the expansion."""
    if not secret:
        raise ValueError("a key cannot be derived from an empty secret")
    extracted = hmac.digest(bytes(32), secret.encode("utf-8"), hashlib.sha256)
    return hmac.digest(extracted, info + b"\x01", hashlib.sha256)


def _signature(key: SigningKey, body: dict[str, Any]) -> str:
    return hmac.new(key.secret, canonical(body), hashlib.sha256).hexdigest()


def _check_deadline(deadline: float) -> None:
    now = wall_seconds()
    if deadline <= now:
        raise OperationExpired
    if deadline > now + MAX_TTL_SECONDS + CLOCK_SKEW_SECONDS:
        raise EnvelopeRefused("the deadline lies too far ahead")


def _shape_problem(envelope: object) -> str | None:
    """What is wrong with the fields, as a sentence; None when they can be worked with."""
    if type(envelope) is not dict or envelope.keys() != _FIELDS:
        return "the message does not have the fields of an envelope"
    if type(envelope["v"]) is not int or envelope["v"] != VERSION:
        return "the message has an unknown version"
    for name in ("key_id", "tenant_id", "task"):
        if not _matches(_NAME, envelope[name]):
            return f"'{name}' is not a name"
    if envelope["reply_to"] is not None and not _matches(_NAME, envelope["reply_to"]):
        return "'reply_to' is not a name"
    if not _matches(_OP_ID, envelope["op_id"]) or not _matches(_SIGNATURE, envelope["sig"]):
        return "'op_id' or 'sig' is malformed"
    if type(envelope["deadline"]) not in (int, float) or not _is_finite(envelope["deadline"]):
        return "'deadline' is not a time"
    if type(envelope["args"]) is not dict:
        return "'args' is not an object"
    return None


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return type(value) is str and pattern.match(value) is not None


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False
