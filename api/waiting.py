"""Waits for the end of a command without polling hard."""

from __future__ import annotations

from collections.abc import Callable

from api.services import Services
from api.slots import Slot
from sandloom.clock import monotonic_seconds
from sandloom.contracts.ports import Watch
from sandloom.execs.records import Exec, ExecRequest
from sandloom.ids import ExecKey, SandboxKey

#: The bus may lose a head: the row is read again at least this often, and the client's presence checked.
SLICE_SECONDS = 2.0


def start_and_wait(
    services: Services, guest: str | None, key: SandboxKey, request: ExecRequest, generation: int, seconds: float,
    gone: Callable[[], bool],
) -> tuple[Exec, bool]:  # fmt: skip
    """Start the command, then wait for its end for at most ``seconds``; without a free place not at all.

    Returns the record so far and whether this call created it. Raises what ``ExecGateway.start`` raises.
    """
    exec_key = ExecKey(*key, request.exec_id)
    slot = services.waits.take(guest) if seconds > 0 else None
    if slot is None:
        return services.exec_gateway.start(key, generation, request)
    with slot, services.bus.watch(exec_key) as watch:
        slot.hold(watch)
        # The watch came first, so the end cannot pass unseen between the start and the wait.
        record, created = services.exec_gateway.start(key, generation, request)
        if record.terminal:
            return services.execs.get(exec_key, output=True), created
        return _wait(services, exec_key, watch, slot, monotonic_seconds() + seconds, gone), created


def wait_for_end(services: Services, guest: str | None, key: ExecKey, seconds: float, gone: Callable[[], bool]) -> Exec:
    """The record, at the latest after ``seconds``. Raises ExecNotFound."""
    record = services.execs.get(key, output=True)
    slot = services.waits.take(guest) if seconds > 0 and not record.terminal else None
    if slot is None:
        return record
    with slot, services.bus.watch(key) as watch:
        slot.hold(watch)
        record = services.execs.get(key, output=True)
        if record.terminal:
            return record
        return _wait(services, key, watch, slot, monotonic_seconds() + seconds, gone)


def _wait(services: Services, key: ExecKey, watch: Watch, slot: Slot, until: float, gone: Callable[[], bool]) -> Exec:
    while True:
        left = until - monotonic_seconds()
        if left > 0:
            head = watch.wait(min(left, SLICE_SECONDS))
            if head is not None and not head.terminal:
                continue
        record = services.execs.get(key, output=True)
        if record.terminal or left <= 0 or slot.stopping or gone():
            return record
