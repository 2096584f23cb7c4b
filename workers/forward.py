"""Requests that named no owner: sent on to the owner as they came, task id and reply address unchanged."""

from __future__ import annotations

from sandloom.errors import SandloomError
from sandloom.ids import SandboxKey
from sandloom.sandboxes.states import SandboxStatus
from sandloom.telemetry import get_logger
from workers.app import WorkerApp
from workers.context import NodeContext
from workers.counters import counters
from workers.pool import Delivery
from workers.tasks.requests import verify

log = get_logger("sandloom.workers.forward")

HOPS_HEADER = "sandloom_hops"
#: A message that was sent on this often runs where it is, and is answered there that the route is stale.
MAX_HOPS = 3
FORK = "sandloom.fork"
#: An owner that is not there must not keep them from being done.
ANYWHERE = frozenset({"sandloom.resolve", "sandloom.resume", "sandloom.exec_status"})


class QueueForwarder:
    def __init__(self, app: WorkerApp, node: NodeContext) -> None:
        self._app = app
        self._node = node

    def forward(self, delivery: Delivery) -> bool:
        """Whether the message was for another worker and is on its way there.

        A message that is refused, or whose sandbox is unknown, is done here, so that its sender is told.
        """
        try:
            owner = self._owner_queue(delivery)
        except Exception as error:
            log.info("dispatched message stays", reason=type(error).__name__)
            return False
        hops = int(delivery.headers.get(HOPS_HEADER) or 0)
        if owner is None or hops >= MAX_HOPS:
            return False
        self._send(delivery, owner, hops + 1)
        counters.add("messages_forwarded")
        return True

    def _owner_queue(self, delivery: Delivery) -> str | None:
        """The queue of another worker; None for what any worker may do and for what is ours."""
        envelope = verify(self._node.keys, delivery.task, delivery.kwargs())
        sandbox_id = envelope.args.get("sandbox_id")
        if delivery.task in ANYWHERE or not isinstance(sandbox_id, str):
            return None
        try:
            route = self._node.sandboxes.get(SandboxKey(envelope.tenant_id, sandbox_id))
        except SandloomError:
            return None
        if delivery.task == FORK and route.status is SandboxStatus.SUSPENDED:
            return None  # copied from its snapshot, which needs no owner
        return None if route.worker_id == self._node.identity.worker_id else route.queue

    def _send(self, delivery: Delivery, queue: str, hops: int) -> None:
        body, properties = delivery.message()
        with self._app.producer_pool.acquire(block=True, timeout=5.0) as producer:
            producer.publish(
                body,
                exchange="",
                routing_key=queue,
                headers={**delivery.headers, HOPS_HEADER: hops},
                delivery_mode=2,
                retry=False,
                **properties,
            )
