"""What must be true once everything has come to rest: in the records, in what commands wrote, and on the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import select, update

from sandloom.db.tables import execs, loose_snapshots, sandbox_history
from sandloom.errors import SandloomError
from sandloom.execs.states import ExecStatus
from sandloom.fleet.records import WorkerStatus
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import OPEN, SandboxStatus
from tests.acceptance.leftovers import Leftovers
from tests.acceptance.worker_fleet import until
from tests.chaos.book import Book, Loss
from tests.chaos.fleet import ChaosFleet, eventually
from tests.integration.domain.world import check_rows

#: Queue, timeout, grace, a worker that starts again, and a machine that does other things too.
REST_SECONDS = 150
#: What a record says of its end may be younger than the end, never older; the clock is the same.
_CLOCK_SECONDS = 0.05
#: A node says this of its own command: it lost track of it, or was refused a write, although it was the owner.
_CONFUSED = ("lost track of the command", "lost the right to run this command")


def come_to_rest(fleet: ChaosFleet, book: Book) -> Iterator[str]:
    """Commands end by themselves; lasting ones are cancelled. What does not end is told."""
    lasting = {order.key for order in book.orders.values() if order.lasting}
    yield from _until_ended(fleet, lambda key: key not in lasting, "did not end")
    for key in lasting:
        with contextlib.suppress(SandloomError):
            fleet.exec_gateway.cancel(key, None)
    yield from _until_ended(fleet, lambda _: True, "did not end although it was cancelled")


def _until_ended(fleet, wanted, complaint: str) -> Iterator[str]:
    query = select(execs).where(execs.c.open_worker_id.is_not(None))
    left: list = []

    def ended() -> bool:
        rows = fleet.services.db.read(lambda connection: connection.execute(query).all())
        left[:] = [row for row in rows if wanted((row.tenant_id, row.sandbox_id, row.exec_id))]
        return not left

    try:
        eventually(ended, REST_SECONDS)
    except AssertionError:
        for row in left:
            yield f"{row.exec_id} {complaint}: {row.status} on {row.worker_id}, epoch {row.worker_epoch}"


def records(fleet: ChaosFleet, book: Book) -> Iterator[str]:
    try:
        fleet.services.db.read(check_rows)
    except AssertionError as error:
        yield f"rows: {error}"
    rows = {row.exec_id: row for row in fleet.services.db.read(lambda c: c.execute(select(execs)).all())}
    for exec_id, order in book.orders.items():
        if order.accepted and exec_id not in rows:
            yield f"{exec_id} was accepted and is not there"
    runs, last_signs = book.runs(fleet.directory), book.last_signs(fleet.directory)
    epochs = {worker.worker_id: worker for worker in fleet.services.fleet.list_workers()}
    for exec_id, row in rows.items():
        ran = runs.pop(exec_id, 0)
        if ran > 1:
            yield f"{exec_id} ran {ran} times; it is {row.status}"
        if row.status == ExecStatus.SUCCEEDED and ran != 1:
            yield f"{exec_id} succeeded and ran {ran} times"
        if row.started_us is None and ran:
            yield f"{exec_id} is {row.status}, not started, and ran"
        if last_signs.get(exec_id, 0) > row.finished_us / 1e6 + _CLOCK_SECONDS:
            late_seconds = last_signs[exec_id] - row.finished_us / 1e6
            yield f"{exec_id} lived for {late_seconds:.1f} s after it was {row.status}"
        owner = epochs.get(row.worker_id)
        lives = owner is not None and (owner.epoch, owner.status) == (row.worker_epoch, WorkerStatus.ACTIVE)
        if row.status == ExecStatus.WORKER_LOST and lives and any(words in (row.detail or "") for words in _CONFUSED):
            yield f"{exec_id} of a living worker: {row.detail}"
    yield from (f"{exec_id} ran and was never admitted" for exec_id in runs)
    succeeded = {exec_id for exec_id, row in rows.items() if row.status == ExecStatus.SUCCEEDED}
    for order in book.orders.values():
        if order.key.exec_id in succeeded and order.stdout is not None:
            stdout = fleet.execs.get(order.key, output=True).stdout
            if stdout != order.stdout:
                yield f"{order.key.exec_id} wrote {stdout!r}, not {order.stdout!r}"


def logs(fleet: ChaosFleet) -> Iterator[str]:
    """The count of slots is never merely mended."""
    for path in sorted(fleet.directory.glob("logs/*.log")):
        for line in path.read_text(errors="replace").splitlines():
            if "slots of a worker had drifted" in line:
                yield f"{path.name}: {line[:300]}"


def losses(fleet: ChaosFleet, book: Book) -> Iterator[str]:
    """Files are lost only with the disk of the worker that had them."""
    for loss in book.losses:
        if not loss.gone & _owners(fleet, loss):
            yield f"{loss.sandbox_id} lost its files in {loss.generations}, although the disk is there: {loss.after}"


def _owners(fleet: ChaosFleet, loss: Loss) -> set[str]:
    h = sandbox_history.c
    query = select(h.worker_id).where(h.sandbox_id == loss.sandbox_id, h.generation.in_(loss.generations))
    return {*fleet.services.db.read(lambda connection: connection.execute(query).scalars().all())}


def wake_all(fleet: ChaosFleet) -> Iterator[str]:
    """Whatever sleeps can be woken, wherever its worker is. A release that a broker lost is asked for again after as
    long as that was away."""
    for route in _routes(fleet):
        try:
            eventually(partial(_is_awake, fleet, route), 2 * REST_SECONDS)
        except AssertionError:
            yield f"{route.key.sandbox_id} does not wake: {fleet.sandboxes.get(route.key)}"


def _is_awake(fleet: ChaosFleet, route: Route) -> bool:
    status = fleet.sandboxes.get(route.key).status
    if status in (SandboxStatus.RELEASING, SandboxStatus.RELEASED):
        return status is SandboxStatus.RELEASED
    awake = fleet.sandbox_gateway.resolve(*route.key, route.workspace_scope_id, route.profile_id, "chaos")
    return fleet.sandbox_gateway.connect(awake.key, awake.generation).status in OPEN


def leftovers(fleet: ChaosFleet) -> Iterator[str]:
    """With every sandbox, and then without any."""
    yield from _left(fleet, "with sandboxes")
    for route in _routes(fleet):
        with contextlib.suppress(AssertionError):
            eventually(partial(_released, fleet, route), REST_SECONDS)
    yield from _left(fleet, "after their release")
    yield from (f"{route.key.sandbox_id} is {route.status}" for route in _routes(fleet))
    yield from _snapshots(fleet)


def _snapshots(fleet: ChaosFleet) -> Iterator[str]:
    """Nothing is in the object store of sandboxes that are gone, once whoever was cut short has had its time."""
    late = update(loose_snapshots).where(loose_snapshots.c.due_us > 0).values(due_us=1)
    fleet.services.db.write(lambda connection: connection.execute(late).close())

    def left() -> list[Path]:
        return [path for path in fleet.servers.s3.objects(fleet.bucket.name, "*.tar.zst") if "snapshots" in path.parts]

    with contextlib.suppress(AssertionError):
        until(lambda: not left(), REST_SECONDS)
    yield from (f"in the object store: {path.relative_to(fleet.bucket)}" for path in left())


def _routes(fleet: ChaosFleet) -> list[Route]:
    found, _ = fleet.sandboxes.list("default", None, None, None, 10_000, 0)
    return [route for route in found if route.status is not SandboxStatus.RELEASED]


def _released(fleet: ChaosFleet, route: Route) -> bool:
    return fleet.sandbox_gateway.release(route.key, None, "chaos").status is SandboxStatus.RELEASED


def _left(fleet: ChaosFleet, when: str) -> Iterator[str]:
    """Rubbish may still be on its way out."""
    for name, worker in fleet.workers.items():
        found: list[str] = []

        def nothing(name=name, worker=worker, found=found) -> bool:
            routes = [route for route in _routes(fleet) if route.worker_id == name]
            found[:] = Leftovers(fleet, worker.process, routes, fleet.disk(name) / "tmp", name).found()
            return not found

        try:
            until(nothing, 30)
        except AssertionError:
            yield from (f"{name}, {when}: {thing}" for thing in found)
