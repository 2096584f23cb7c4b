"""One HTTP call: authorization, problems as exceptions, and the few repetitions that are safe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from sandloom.errors import Unavailable
from sandloom.sdk.aio.waiting import sleep
from sandloom.sdk.http import (
    MAX_PAUSE_SECONDS,
    address,
    client_options,
    pause_seconds,
    present,
    problem_of,
    timeout,
    unreachable,
)


class AsyncTransport:
    """``tries`` bounds how often a call that is safe to repeat is sent."""

    def __init__(
        self, base_url: str, token: str, *, tenant: str | None, timeout_seconds: float, tries: int = 4
    ) -> None:
        self._tries = tries
        self._timeout_seconds = timeout_seconds
        self._http = httpx.AsyncClient(**client_options(base_url, token, tenant, timeout_seconds))

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
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
        longest = timeout(self._timeout_seconds + wait_seconds)
        for attempt in range(1, self._tries + 1):
            last = attempt == self._tries
            try:
                response = await self._http.request(
                    method, address(path), json=json, params=present(params), headers=headers, timeout=longest
                )
            except httpx.TransportError as error:
                # Without a connection nothing was sent, so any call may be repeated.
                if last or not (safe or isinstance(error, httpx.ConnectError)):
                    raise unreachable(error) from error
                await sleep(pause_seconds(attempt))
                continue
            if response.status_code < 400:
                return response
            problem = problem_of(response)
            if last or not safe or not isinstance(problem, Unavailable):
                raise problem
            await sleep(min(problem.retry_after_seconds or 1, MAX_PAUSE_SECONDS))
        raise AssertionError("unreachable")

    async def send(
        self, method: str, path: str, *, params: Mapping[str, Any], content: AsyncIterator[bytes]
    ) -> httpx.Response:
        """A streamed body; never repeated."""
        headers = {"Content-Type": "application/octet-stream"}
        try:
            response = await self._http.request(
                method, address(path), params=present(params), content=content, headers=headers
            )
        except httpx.TransportError as error:
            raise unreachable(error) from error
        if response.status_code >= 400:
            raise problem_of(response)
        return response

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        read_timeout_seconds: float | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """A streamed answer. httpx.TransportError passes through, so that the caller can go on where it was."""
        longest = timeout(read_timeout_seconds or self._timeout_seconds)
        request = self._http.stream("GET", address(path), params=present(params), headers=headers, timeout=longest)
        async with request as response:
            if response.status_code >= 400:
                await response.aread()
                raise problem_of(response)
            yield response
