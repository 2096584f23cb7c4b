"""What a call is made of, apart from the waiting: addresses, timeouts, problems as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import httpx

from sandloom.contracts.refusals import invalid
from sandloom.errors import SandloomError, SettingsInvalid, Unauthorized, Unavailable
from sandloom.ids import NAME_RULE, is_name

API = "/api/v1"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MAX_PAUSE_SECONDS = 5.0


class ClientOptions(TypedDict):
    """For httpx's clients."""

    base_url: str
    headers: dict[str, str]
    timeout: httpx.Timeout
    limits: httpx.Limits
    trust_env: bool


def client_options(base_url: str, token: str, tenant: str | None, timeout_seconds: float) -> ClientOptions:
    """Raises SettingsInvalid, which never shows a value: an address may hold a password too."""
    _check_address(base_url)
    for what, value in (("the token (SANDBOX_API_KEY, SANDBOX_INTERNAL_TOKEN)", token), ("SANDBOX_TENANT", tenant)):
        if not all("!" <= char <= "~" for char in value or ""):
            raise SettingsInvalid(f"{what} must be of visible ASCII characters, without spaces and line breaks")
    # Without a token the service says how to send one.
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if tenant is not None:
        headers["X-Sandbox-Tenant"] = tenant
    return {
        "base_url": base_url,
        "headers": headers,
        "timeout": timeout(timeout_seconds),
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=32),
        "trust_env": trusted_environment(base_url),
    }


def _check_address(base_url: str) -> None:
    try:
        url = httpx.URL(base_url)
        fits = url.scheme in ("http", "https") and bool(url.host) and not url.path.rstrip("/").endswith(API)
    except httpx.InvalidURL:
        fits = False
    if not fits:
        raise SettingsInvalid(
            f"the service's address (SANDBOX_BASE_URL) must be http:// or https:// with a host, and without {API}"
        )


def timeout(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=10.0)


def trusted_environment(base_url: str) -> bool:
    """Whether proxies of the environment are used: not for this machine."""
    return httpx.URL(base_url).host not in _LOOPBACK


def problem_of(response: httpx.Response) -> SandloomError:
    """The exception for an answer of 400 and above. Its text says what happened and what to do about it; ``detail`` is
    the service's own."""
    body: Any = None
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or "code" not in body:
        detail = f"{response.status_code} {response.reason_phrase} from {response.request.url.host}, without a problem"
        kind = Unavailable if response.status_code in (502, 503, 504) else SandloomError
        return kind(detail)
    extra = {"http_status": response.status_code, "request_id": response.headers.get("X-Request-ID")}
    retry_after = response.headers.get("Retry-After", "")
    if retry_after.isdigit():
        extra["retry_after_seconds"] = int(retry_after)
    error = SandloomError.from_problem({**extra, **body})
    if str(error) == error.detail and error.remedy not in error.detail:
        error.args = (f"{error.detail} – {error.remedy}",)
    if isinstance(error, Unauthorized) and "Authorization" not in response.request.headers:
        error.args = (
            f"{error}; this client has no token: set SANDBOX_API_KEY or SANDBOX_INTERNAL_TOKEN, or give it one",
        )
    return error


def unreachable(error: httpx.TransportError) -> Unavailable:
    reason = str(error) or type(error).__name__
    try:
        where = f"{error.request.url.scheme}://{error.request.url.netloc.decode()}"
    except RuntimeError:
        where = "the service"
    return Unavailable(f"{where} does not answer: {reason}")


def pause_seconds(attempt: int) -> float:
    """0.1, 0.2, 0.4 … up to the bound."""
    return min(0.1 * 2.0 ** (attempt - 1), MAX_PAUSE_SECONDS)


def present(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if params is None else {name: value for name, value in params.items() if value is not None}


def name_in_address(field: str, value: str) -> str:
    """``value`` as it is. Raises ValidationFailed where the service would see another address instead of a name."""
    if not is_name(value):
        raise invalid(field, NAME_RULE)
    return value


def address(path: str) -> str:
    """``/healthz`` stands outside the API's base path."""
    return path if path == "/healthz" else API + path
