"""URLs: driver names and what may be shown of them."""

from __future__ import annotations

import re

_SYNC = {
    "postgres": "postgresql+psycopg2",
    "postgresql": "postgresql+psycopg2",
    "postgresql+asyncpg": "postgresql+psycopg2",
    "sqlite+aiosqlite": "sqlite",
    "mysql": "mysql+pymysql",
    "mysql+aiomysql": "mysql+pymysql",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "mariadb+aiomysql": "mariadb+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
}
_DATABASES = ("postgresql", "sqlite", "mysql", "mariadb")
_USERINFO = re.compile(r"""(?<=://)[^\s"',]*(?=@)""")
_QUERY = re.compile(r"""([?&](?:password|passwd|token|secret|api_key|access_key)=)[^&\s"',]*""", re.IGNORECASE)
_CERTIFICATE_CHECK = re.compile(r"([?&]ssl_cert_reqs=)CERT_(REQUIRED|OPTIONAL|NONE)(?=&|$)")
_ASYNCPG_SSL = re.compile(r"(?<=[?&])ssl=")


def sync_database_url(url: str) -> str:
    """The URL with the synchronous driver of its database; ValueError for a database that is not known."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise ValueError("is not a SQLAlchemy URL")
    mapped = _SYNC.get(scheme, scheme)
    if mapped.split("+")[0] not in _DATABASES:
        raise ValueError(f"names an unknown database; known are {', '.join(_DATABASES)}")
    if scheme == "postgresql+asyncpg":
        rest = _ASYNCPG_SSL.sub("sslmode=", rest)
    return f"{mapped}://{rest}"


def masked(text: str) -> str:
    """``text`` with the user, password and secret query values of every URL in it replaced by ``***``."""
    return _QUERY.sub(r"\1***", _USERINFO.sub("***", text))


def is_memory(url: str) -> bool:
    """Whether the URL names an in-process transport, which no second process can reach."""
    return url.partition("://")[0] in ("memory", "sandloom-memory")


def is_redis(url: str) -> bool:
    return url.partition("://")[0] in ("redis", "rediss")


def redis_client_url(url: str) -> str:
    """The URL for redis-py, which writes ``required`` where Celery and kombu write ``CERT_REQUIRED``."""
    return _CERTIFICATE_CHECK.sub(lambda found: found[1] + found[2].lower(), url)
