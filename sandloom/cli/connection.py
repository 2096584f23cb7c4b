"""How client commands reach a service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandloom.cli.invocation import Invocation, Stop
from sandloom.errors import SettingsInvalid
from sandloom.sdk import Client
from sandloom.settings import TOKEN_FILE, default_data_dir, read_token


def connect(invocation: Invocation, tenant_id: str | None = None) -> Client:
    """A client for SANDBOX_BASE_URL (default: the local service) with the token of the environment, else of a file.
    ``tenant_id`` goes before SANDBOX_TENANT. Raises Stop without a token, and SettingsInvalid."""
    url, token, tenant = access(invocation)
    return Client(url, token, tenant=tenant_id or tenant)


def access(invocation: Invocation) -> tuple[str, str, str | None]:
    """The address, the token and the tenant to name. Raises Stop without a token, and SettingsInvalid."""
    environ = with_fallback(invocation)
    url = base_url(environ)
    token, _ = _token(invocation, environ)
    if not token:
        raise Stop(
            f"no token for {url}: set SANDBOX_API_KEY or SANDBOX_INTERNAL_TOKEN, or start a local 'sandloom up'", 1
        )
    return url, token, environ.get("SANDBOX_TENANT") or None


def refused_token(invocation: Invocation) -> str:
    """What to do about a token that the service does not take: its source, never its value."""
    _, source = _token(invocation, with_fallback(invocation))
    return (
        f"the service does not take the token of {source}; set another one in SANDBOX_API_KEY, which goes first, or in"
        " SANDBOX_INTERNAL_TOKEN, or name the token's own service in SANDBOX_BASE_URL"
    )


def _token(invocation: Invocation, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """The token and where it is from."""
    for name in ("SANDBOX_API_KEY", "SANDBOX_INTERNAL_TOKEN"):
        if token := environ.get(name):
            return token, name if invocation.environ.get(name) else f"{name} in {invocation.dotenv}"
    directory = data_dir(environ)
    return read_token(directory), f"the file {directory / TOKEN_FILE}"


def base_url(environ: Mapping[str, str]) -> str:
    """SANDBOX_BASE_URL as it is, else an address of this machine. Raises SettingsInvalid."""
    if url := environ.get("SANDBOX_BASE_URL"):
        return url
    port = environ.get("SANDBOX_PORT") or "8080"
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise SettingsInvalid("SANDBOX_PORT must be a number from 1 to 65535")
    return f"http://127.0.0.1:{port}"


def data_dir(environ: Mapping[str, str]) -> Path:
    given = environ.get("SANDBOX_DATA_DIR")
    return Path(given) if given else default_data_dir(os.path.expanduser("~"), os.geteuid())


def with_fallback(invocation: Invocation) -> Mapping[str, str]:
    """The environment, and under it what the fallback file holds."""
    if not invocation.dotenv.is_file():
        return invocation.environ
    try:
        from dotenv import dotenv_values
    except ImportError:
        return invocation.environ
    values = dotenv_values(invocation.dotenv, interpolate=False)
    return {**{name: value for name, value in values.items() if value is not None}, **invocation.environ}
