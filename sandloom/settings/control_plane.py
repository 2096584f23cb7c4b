"""Where the control plane listens, as far as a worker knows: what commands on its network could dial."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from sandloom.settings.model import Settings

Target = dict[str, Any]

#: Of AWS, Google, Azure, OpenStack and others; of AWS over IPv6 and for containers; of Alibaba, Azure and Oracle.
METADATA = (
    "169.254.169.254", "fd00:ec2::254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
)  # fmt: skip
FLOWER_PORT = 5555
_PORTS = {"redis": 6379, "postgresql": 5432, "mysql": 3306, "amqp": 5672}
_REMEDIES = {
    "redis": "give the server a password (requirepass)",
    "postgresql": "let pg_hba.conf ask for a password (scram-sha-256) instead of trusting the address",
    "mysql": "give the account a password",
    "amqp": "remove the account guest or change its password",
}
_ISOLATED = "or set SANDBOX_NETWORK_MODE=isolated"


def control_plane(settings: Settings, channel: str | None = None) -> list[Target]:
    """Targets: ``name, protocol, host, port, tls, path, user, database, remedy``, or ``socket`` in the place of host.

    Never a password. ``channel``: the URL of the worker's byte channel.
    """
    found = [*_servers(settings), *_http(settings, channel), *_metadata(settings)]
    unique: dict[tuple[str, ...], Target] = {}
    for target in found:
        # One server may be several things.
        known = unique.setdefault(tuple(str(target[part]) for part in ("protocol", "host", "port", "socket")), target)
        if known is not target:
            known["name"] = f"{known['name']}, {target['name']}"
    return list(unique.values())


def _servers(settings: Settings) -> Iterator[Target]:
    urls = {
        "broker (SANDBOX_BROKER_URL)": settings.broker_url,
        "bus (SANDBOX_BUS_URL)": settings.bus_url,
        "result backend (SANDBOX_RESULT_BACKEND)": settings.result_backend or "",
        "registry (SANDBOX_REDIS_URL)": settings.redis_url if settings.registry_backend == "redis" else "",
        "database (SANDBOX_DATABASE_URL)": settings.database_url,
    }
    for name, url in urls.items():
        scheme = urlsplit(url).scheme.split("+")[0]
        protocol = {"rediss": "redis", "amqps": "amqp", "pyamqp": "amqp", "mariadb": "mysql"}.get(scheme, scheme)
        if protocol in _PORTS:
            yield _of_url(name, protocol, url, tls=scheme in ("rediss", "amqps"))


def _of_url(name: str, protocol: str, url: str, *, tls: bool) -> Target:
    parts = urlsplit(url)
    port = parts.port or (5671 if parts.scheme == "amqps" else _PORTS[protocol])
    account = unquote(parts.username or "") or ("postgres" if protocol == "postgresql" else "root")
    directory = parse_qs(parts.query).get("host", [""])[0]
    return _target(
        name,
        protocol,
        parts.hostname or "127.0.0.1",
        port,
        f"{_REMEDIES[protocol]}, {_ISOLATED}",
        tls=tls,
        user=account,
        database=unquote(parts.path.lstrip("/")) or account,
        socket=f"{directory}/.s.PGSQL.{port}" if directory.startswith("/") else "",
    )


def _http(settings: Settings, channel: str | None) -> Iterator[Target]:
    flower = f"put a password before it (--basic-auth), {_ISOLATED}"
    yield _target("Flower", "http", "127.0.0.1", FLOWER_PORT, flower)
    other = f"let nothing else answer there, {_ISOLATED}"
    host = settings.host if settings.host not in ("0.0.0.0", "::", "") else "127.0.0.1"
    yield _target("API", "http", host, settings.port, other, path="/api/v1/sandboxes")
    if channel:
        yield _of_http("byte channel", channel, other, "/internal/v1/raw")
    if settings.blobstore_endpoint:
        name, path = "object store (SANDBOX_BLOBSTORE_ENDPOINT)", f"/{settings.blobstore_bucket or ''}"
        yield _of_http(name, settings.blobstore_endpoint, f"deny it to anonymous users, {_ISOLATED}", path)


def _of_http(name: str, url: str, remedy: str, path: str) -> Target:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    return _target(name, "http", parts.hostname or "", parts.port or (443 if tls else 80), remedy, tls=tls, path=path)


def _metadata(settings: Settings) -> Iterator[Target]:
    remedy = (
        "it may hand out the machine's credentials; let a firewall drop what the UIDs"
        f" {settings.uid_start}-{settings.uid_end} send there (iptables -m owner), {_ISOLATED}"
    )
    for address in METADATA:
        yield _target("metadata service", "metadata", address, 80, remedy, path="/")


def _target(name: str, protocol: str, host: str, port: int, remedy: str, **more: Any) -> Target:
    defaults = {"tls": False, "path": "/", "user": "", "database": "", "socket": ""}
    return {"name": name, "protocol": protocol, "host": host, "port": port, "remedy": remedy, **defaults, **more}
