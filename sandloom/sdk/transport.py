"""One HTTP call: authorization, problems as exceptions, and the few repetitions that are safe."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from sandloom.errors import SandloomError, Unavailable

API = "/api/v1"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_MAX_PAUSE_SECONDS = 5.0


class Transport:
    """Thread-safe. ``tries`` bounds how often a call that is safe to repeat is sent."""

    def __init__(
        self, base_url: str, token: str, *, tenant: str | None, timeout_seconds: float, tries: int = 4
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        if tenant is not None:
            headers["X-Sandbox-Tenant"] = tenant
        self._tries = tries
        self._timeout_seconds = timeout_seconds
        self._http = httpx.Client(
            base_url=base_url,
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            trust_env=trusted_environment(base_url),
        )

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0,
        safe: bool = False,
    ) -> httpx.Response:
        """The answer with a status below 400; raises the SandloomError of any other.

        ``safe``: repeating the call does no harm, so lost connections and 503 SERVICE_UNAVAILABLE are tried again.
        """
        timeout = httpx.Timeout(self._timeout_seconds + wait_seconds, connect=10.0)
        for attempt in range(1, self._tries + 1):
            last = attempt == self._tries
            try:
                response = self._http.request(
                    method, address(path), json=json, params=_present(params), headers=headers, timeout=timeout
                )
            except httpx.TransportError as error:
                # Without a connection nothing was sent, so any call may be repeated.
                if last or not (safe or isinstance(error, httpx.ConnectError)):
                    raise unreachable(error) from error
                time.sleep(pause_seconds(attempt))
                continue
            if response.status_code < 400:
                return response
            problem = problem_of(response)
            if last or not safe or not isinstance(problem, Unavailable):
                raise problem
            time.sleep(min(problem.retry_after_seconds or 1, _MAX_PAUSE_SECONDS))
        raise AssertionError("unreachable")

    def send(self, method: str, path: str, *, params: Mapping[str, Any], content: Iterable[bytes]) -> httpx.Response:
        """A streamed body; never repeated."""
        headers = {"Content-Type": "application/octet-stream"}
        try:
            response = self._http.request(
                method, address(path), params=_present(params), content=content, headers=headers
            )
        except httpx.TransportError as error:
            raise unreachable(error) from error
        if response.status_code >= 400:
            raise problem_of(response)
        return response

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_seconds: float | None = None,
    ) -> Iterator[httpx.Response]:
        """A streamed answer. httpx.TransportError passes through, so that the caller can go on where it was."""
        timeout = httpx.Timeout(read_timeout_seconds or self._timeout_seconds, connect=10.0)
        request = self._http.stream("GET", address(path), params=_present(params), headers=headers, timeout=timeout)
        with request as response:
            if response.status_code >= 400:
                response.read()
                raise problem_of(response)
            yield response


def problem_of(response: httpx.Response) -> SandloomError:
    """The exception for an answer of 400 and above."""
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
    return SandloomError.from_problem({**extra, **body})


def unreachable(error: httpx.TransportError) -> Unavailable:
    reason = str(error) or type(error).__name__
    try:
        where = f"{error.request.url.scheme}://{error.request.url.netloc.decode()}"
    except RuntimeError:
        where = "the service"
    return Unavailable(f"{where} does not answer: {reason}")


def pause_seconds(attempt: int) -> float:
    """0.1, 0.2, 0.4 … up to the bound."""
    return min(0.1 * 2.0 ** (attempt - 1), _MAX_PAUSE_SECONDS)


def _present(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if params is None else {name: value for name, value in params.items() if value is not None}


def trusted_environment(base_url: str) -> bool:
    """Whether proxies of the environment are used: not for this machine."""
    return httpx.URL(base_url).host not in _LOOPBACK


def address(path: str) -> str:
    """``/healthz`` stands outside the API's base path."""
    return path if path == "/healthz" else API + path
