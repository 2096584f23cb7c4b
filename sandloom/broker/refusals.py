"""Why a broker or Redis server refuses a connection that can never work, told from one that is down for a while."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

import amqp
import redis

CREDENTIALS: Final = "the server refuses the user or the password"
VIRTUAL_HOST: Final = "the virtual host is not there, or this user may not use it"
DATABASE: Final = "the server has no database of this number, or this user may not use it"
CERTIFICATE: Final = "the server's certificate is not trusted; name its authority with ssl_ca_certs in the URL"
NO_TLS: Final = "the port does not speak TLS"
TLS_FILES: Final = "a file that the URL's ssl_… parameters name cannot be read"

_BY_CLASS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (redis.AuthenticationError, CREDENTIALS),
    (redis.exceptions.AuthorizationError, CREDENTIALS),
    (amqp.AccessRefused, CREDENTIALS),
    (amqp.NotAllowed, VIRTUAL_HOST),
    (ssl.SSLCertVerificationError, CERTIFICATE),
    (ssl.SSLError, NO_TLS),
    (FileNotFoundError, TLS_FILES),
    (PermissionError, TLS_FILES),
)


def why_refused(error: BaseException) -> str | None:
    """A fixed sentence without anything of the URL; None for what may pass by itself."""
    for link in _chain(error):
        if isinstance(link, redis.exceptions.BusyLoadingError):
            return None
        for kind, reason in _BY_CLASS:
            if isinstance(link, kind):
                return reason
        if isinstance(link, redis.ResponseError) and "DB index" in str(link):
            return DATABASE
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it; clients wrap what the socket said."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__
