"""The names under which the MCP endpoint is served.

A page in a browser can have a name of its own resolve to this service (DNS rebinding). Then it sends that name as
``Host``, and its ``Origin`` besides.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandloom.errors import HostNotAllowed, OriginNotAllowed


def check_host(allowed: Iterable[str], host: str | None, origin: str | None) -> None:
    """Raises HostNotAllowed, OriginNotAllowed. ``name:*`` allows any port; clients that are no browsers send no
    origin."""
    names = frozenset(name.lower() for name in allowed)
    if not _is_allowed(names, host or ""):
        raise HostNotAllowed
    if origin is not None:
        scheme, _, site = origin.partition("://")
        if scheme.lower() not in ("http", "https") or not _is_allowed(names, site):
            raise OriginNotAllowed


def _is_allowed(names: frozenset[str], given: str) -> bool:
    name, colon, port = given.lower().rpartition(":")
    if colon and port.isascii() and port.isdigit() and f"{name}:*" in names:
        return True
    return given.lower() in names and port != "*"
