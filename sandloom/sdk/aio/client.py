"""The way in: a connection to one service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from sandloom.contracts.rest import RouteAnswer
from sandloom.contracts.templates import TemplateAnswer, TemplateList
from sandloom.ids import new_id
from sandloom.sdk.aio.sandbox import AsyncSandbox
from sandloom.sdk.aio.tenants import AsyncTenantCalls
from sandloom.sdk.aio.transport import AsyncTransport
from sandloom.sdk.aio.waiting import Pending, pending
from sandloom.sdk.http import name_in_address

DEFAULT_URL = "http://127.0.0.1:8080"


class AsyncClient:
    """Holds a pool of connections until ``close``. The synchronous one is thread-safe.

    >>> async with AsyncClient("http://127.0.0.1:8080", token) as c:
    ...     async with c.sandbox("my-agent", scope="team/a") as box:
    ...         print((await box.run(["uname", "-s"])).stdout)
    """

    def __init__(
        self, base_url: str = DEFAULT_URL, token: str = "", *, tenant: str | None = None, timeout_seconds: float = 60.0
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._transport = AsyncTransport(self.base_url, token, tenant=tenant, timeout_seconds=timeout_seconds)
        self.tenant = AsyncTenantCalls(self._transport)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Reads SANDBOX_BASE_URL (or SANDBOX_PORT, of this machine), SANDBOX_API_KEY or SANDBOX_INTERNAL_TOKEN, and
        SANDBOX_TENANT. Raises SettingsInvalid."""
        source = os.environ if environ is None else environ
        port = source.get("SANDBOX_PORT")
        url = source.get("SANDBOX_BASE_URL") or (f"http://127.0.0.1:{port}" if port else DEFAULT_URL)
        token = source.get("SANDBOX_API_KEY") or source.get("SANDBOX_INTERNAL_TOKEN") or ""
        return cls(url, token, tenant=source.get("SANDBOX_TENANT") or None)

    def sandbox(
        self,
        sandbox_id: str | None = None,
        *,
        scope: str = "default",
        profile: str = "coding-default",
        keep: bool = False,
    ) -> Pending[AsyncSandbox]:
        """Find or make a sandbox and have its workspace made ready.

        ``scope`` is the workspace_scope_id: the same id with another one is refused (ScopeMismatch). Without an id a
        new one is chosen. ``keep`` leaves the sandbox in place at the end of a ``with`` block.
        """
        return pending(self._sandbox(sandbox_id or f"sbx-{new_id()}", scope, profile, keep))

    async def _sandbox(self, sandbox_id: str, scope: str, profile: str, keep: bool) -> AsyncSandbox:
        body = {"sandbox_id": sandbox_id, "workspace_scope_id": scope, "profile": profile}
        answer = await self._transport.call("POST", "/sandboxes/resolve", json=body, safe=True)
        box = AsyncSandbox(self._transport, RouteAnswer.model_validate(answer.json()), keep=keep)
        await box.connect()
        return box

    async def attach(self, sandbox_id: str) -> AsyncSandbox:
        """A sandbox that exists, as it is; nothing is resolved, and nothing released at the end of a block."""
        answer = await self._transport.call("GET", f"/sandboxes/{name_in_address('sandbox_id', sandbox_id)}", safe=True)
        return AsyncSandbox(self._transport, RouteAnswer.model_validate(answer.json()), keep=True)

    async def sandboxes(
        self,
        *,
        status: str | None = None,
        scope: str | None = None,
        search: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[RouteAnswer]:
        """The tenant's sandboxes, one page of them."""
        params = {"status": status, "workspace_scope_id": scope, "search": search, "limit": limit, "offset": offset}
        answer = await self._transport.call("GET", "/sandboxes", params=params, safe=True)
        return [RouteAnswer.model_validate(item) for item in answer.json()["sandboxes"]]

    async def templates(self) -> list[TemplateAnswer]:
        """What can be attached: the tenant's own templates and the operator's."""
        answer = await self._transport.call("GET", "/templates", safe=True)
        return TemplateList.model_validate(answer.json()).templates

    async def unpublish_template(self, name: str) -> TemplateAnswer:
        """Take a name out of the catalog; sandboxes that have it mounted keep it."""
        answer = await self._transport.call("DELETE", f"/templates/{quote(name, safe='')}")
        return TemplateAnswer.model_validate(answer.json())

    async def health(self) -> dict[str, Any]:
        """What ``/healthz`` says."""
        answer = await self._transport.call("GET", "/healthz", safe=True)
        health: dict[str, Any] = answer.json()
        return health

    async def workers(self) -> list[dict[str, Any]]:
        """The live workers as ``/sandboxes/diagnostics/runtime`` lists them."""
        answer = await self._transport.call("GET", "/sandboxes/diagnostics/runtime", safe=True)
        rows: list[dict[str, Any]] = answer.json()["workers"]
        return rows

    async def worker_health(self, worker_id: str) -> dict[str, Any]:
        """What a worker says of itself. Operators only, as the next two."""
        return await self._of_worker("GET", worker_id, "health")

    async def drain_worker(self, worker_id: str) -> dict[str, Any]:
        """Have a worker emptied; its row, whose ``drain`` says how far that is."""
        return await self._of_worker("POST", worker_id, "drain")

    async def undrain_worker(self, worker_id: str) -> dict[str, Any]:
        """Let a worker take sandboxes again; its row."""
        return await self._of_worker("POST", worker_id, "undrain")

    async def _of_worker(self, method: str, worker_id: str, what: str) -> dict[str, Any]:
        path = f"/admin/workers/{quote(worker_id, safe='')}/{what}"
        answer = await self._transport.call(method, path, safe=True)
        said: dict[str, Any] = answer.json()
        return said

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"
