"""What the API calls for templates: the owner builds and attaches; the catalog answers where all workers share one."""

from __future__ import annotations

from typing import Any

from sandloom.contracts.ports import WorkerControl
from sandloom.errors import TemplateNotFound
from sandloom.fleet.service import Fleet
from sandloom.ids import SandboxKey
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.states import SandboxStatus
from sandloom.templates.catalog import Catalog

_ASK_SECONDS = 10.0
_MAX_WORKERS = 1000
#: Beyond what building takes: the upload, and the way there and back.
_MARGIN_SECONDS = 60.0


class TemplateGateway:
    """``catalog``: the shared one; ``None``: each worker has its own."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        gateway: SandboxGateway,
        control: WorkerControl,
        fleet: Fleet,
        catalog: Catalog | None,
        build_seconds: float,
    ) -> None:
        self._sandboxes = sandboxes
        self._gateway = gateway
        self._control = control
        self._fleet = fleet
        self._catalog = catalog
        self._timeout_seconds = build_seconds + _MARGIN_SECONDS

    def build(self, key: SandboxKey, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._ask(key, "sandloom.templates.build", arguments)

    def attach(self, key: SandboxKey, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._ask(key, "sandloom.templates.attach", arguments)

    def published(self, tenant_id: str) -> list[dict[str, Any]]:
        if self._catalog is not None:
            return [found.answer(True) for found in self._catalog.list(tenant_id)]
        found = {}
        for worker in self._live():
            answer = self._control.call(
                worker, "sandloom.templates.list", tenant_id, {}, timeout_seconds=_ASK_SECONDS
            )  # fmt: skip
            found.update({(item["name"], item["digest"]): item for item in answer["templates"]})
        return [item for _, item in sorted(found.items())]

    def unpublish(self, tenant_id: str, name: str) -> dict[str, Any]:
        """Raises TemplateNotFound when nobody has it."""
        if self._catalog is not None:
            return self._catalog.unpublish(tenant_id, name).answer(True)
        gone: dict[str, Any] | None = None
        for worker in self._live():
            try:
                gone = self._control.call(
                    worker, "sandloom.templates.unpublish", tenant_id, {"name": name}, timeout_seconds=_ASK_SECONDS
                )
            except TemplateNotFound:
                continue
        if gone is None:
            raise TemplateNotFound(f"There is no template {name} of yours.")
        return gone

    def _live(self) -> list[str]:
        return [worker.queue for worker in self._fleet.list_workers(_MAX_WORKERS) if worker.live]

    def _ask(self, key: SandboxKey, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        route = self._sandboxes.current(key, arguments["generation"])
        if route.status is SandboxStatus.ASSIGNED:
            route = self._gateway.connect(key, route.generation)
        named = {"sandbox_id": key.sandbox_id, **arguments}
        return self._control.call(route.queue, task, key.tenant_id, named, timeout_seconds=self._timeout_seconds)
