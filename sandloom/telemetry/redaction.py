"""What never reaches a log line."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any

HIDDEN = "[hidden]"
_MAX_DEPTH = 6

#: Values under these names are hidden wherever they appear.
SECRET_NAMES = frozenset(
    {
        "authorization", "cookie", "set_cookie", "token", "internal_token", "internal_token_previous", "secret",
        "secret_key", "password", "passwd", "api_key", "access_key", "blobstore_access_key", "blobstore_secret_key",
        "provider_key", "x_provider_key", "x_sandloom_envelope", "envelope", "sig", "signature", "private_key",
        "sensitive_env", "env", "environ", "stdin", "stdin_base64", "content_base64",
    }
)  # fmt: skip

_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}")
_USERINFO = re.compile(r"""(?<=://)[^\s"'/,@]*:[^\s"',]*(?=@)""")


def redact(value: Any, depth: int = 0) -> Any:
    """A copy of ``value`` without what a secret name holds, bearer tokens and passwords in URLs."""
    if isinstance(value, str):
        return _redact_text(value)
    if depth >= _MAX_DEPTH:
        return HIDDEN if isinstance(value, Mapping | list | tuple | set) else value
    if isinstance(value, Mapping):
        return {key: HIDDEN if _is_secret(key) else redact(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item, depth + 1) for item in value]
    return value


def redact_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """structlog processor."""
    hidden: Mapping[str, Any] = redact(event)
    return hidden


def _redact_text(text: str) -> str:
    # Most texts are one word and no URL; a token comes after its scheme and a space.
    if len(text.split(maxsplit=1)) > 1:
        text = _BEARER.sub(r"\1 ***", text)
    return _USERINFO.sub("***", text) if "://" in text else text


@lru_cache(maxsize=1024)
def _is_secret(name: object) -> bool:
    return isinstance(name, str) and name.lower().replace("-", "_").removeprefix("sandbox_") in SECRET_NAMES
