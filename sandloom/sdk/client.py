# Made from sandloom/sdk/aio/client.py by scripts/sync_sdk.py: change that one.
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
from sandloom.sdk.http import name_in_address
from sandloom.sdk.sandbox import Sandbox
from sandloom.sdk.tenants import TenantCalls
from sandloom.sdk.transport import Transport
from sandloom.sdk.waiting import pending

DEFAULT_URL = "http://127.0.0.1:8080"


class Client:
    """Holds a pool of connections until ``close``. The synchronous one is thread-safe.

    >>> with Client("http://127.0.0.1:8080", token) as c:
    ...     with c.sandbox("my-agent", scope="team/a") as box:
    ...         print((box.run(["uname", "-s"])).stdout)
    """

    def __init__(
        self, base_url: str = DEFAULT_URL, token: str = "", *, tenant: str | None = None, timeout_seconds: float = 60.0
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._transport = Transport(self.base_url, token, tenant=tenant, timeout_seconds=timeout_seconds)
        self.tenant = TenantCalls(self._transport)

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
    ) -> Sandbox:
        """Find or make a sandbox and have its workspace made ready.

        ``scope`` is the workspace_scope_id: the same id with another one is refused (ScopeMismatch). Without an id a
        new one is chosen. ``keep`` leaves the sandbox in place at the end of a ``with`` block.
        """
        return pending(self._sandbox(sandbox_id or f"sbx-{new_id()}", scope, profile, keep))

    def _sandbox(self, sandbox_id: str, scope: str, profile: str, keep: bool) -> Sandbox:
        body = {"sandbox_id": sandbox_id, "workspace_scope_id": scope, "profile": profile}
        answer = self._transport.call("POST", "/sandboxes/resolve", json=body, safe=True)
        box = Sandbox(self._transport, RouteAnswer.model_validate(answer.json()), keep=keep)
        box.connect()
        return box

    def attach(self, sandbox_id: str) -> Sandbox:
        """A sandbox that exists, as it is; nothing is resolved, and nothing released at the end of a block."""
        answer = self._transport.call("GET", f"/sandboxes/{name_in_address('sandbox_id', sandbox_id)}", safe=True)
        return Sandbox(self._transport, RouteAnswer.model_validate(answer.json()), keep=True)

    def sandboxes(
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
        answer = self._transport.call("GET", "/sandboxes", params=params, safe=True)
        return [RouteAnswer.model_validate(item) for item in answer.json()["sandboxes"]]

    def templates(self) -> list[TemplateAnswer]:
        """What can be attached: the tenant's own templates and the operator's."""
        answer = self._transport.call("GET", "/templates", safe=True)
        return TemplateList.model_validate(answer.json()).templates

    def unpublish_template(self, name: str) -> TemplateAnswer:
        """Take a name out of the catalog; sandboxes that have it mounted keep it."""
        answer = self._transport.call("DELETE", f"/templates/{quote(name, safe='')}")
        return TemplateAnswer.model_validate(answer.json())

    def health(self) -> dict[str, Any]:
        """What ``/healthz`` says."""
        answer = self._transport.call("GET", "/healthz", safe=True)
        health: dict[str, Any] = answer.json()
        return health

    def workers(self) -> list[dict[str, Any]]:
        """The live workers as ``/sandboxes/diagnostics/runtime`` lists them."""
        answer = self._transport.call("GET", "/sandboxes/diagnostics/runtime", safe=True)
        rows: list[dict[str, Any]] = answer.json()["workers"]
        return rows

    def worker_health(self, worker_id: str) -> dict[str, Any]:
        """What a worker says of itself. Operators only, as the next two."""
        return self._of_worker("GET", worker_id, "health")

    def drain_worker(self, worker_id: str) -> dict[str, Any]:
        """Have a worker emptied; its row, whose ``drain`` says how far that is."""
        return self._of_worker("POST", worker_id, "drain")

    def undrain_worker(self, worker_id: str) -> dict[str, Any]:
        """Let a worker take sandboxes again; its row."""
        return self._of_worker("POST", worker_id, "undrain")

    def _of_worker(self, method: str, worker_id: str, what: str) -> dict[str, Any]:
        path = f"/admin/workers/{quote(worker_id, safe='')}/{what}"
        answer = self._transport.call(method, path, safe=True)
        said: dict[str, Any] = answer.json()
        return said

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"
