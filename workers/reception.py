"""Where a message goes: doorbells and direct execs to the command lane, everything else to a control lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from sandloom.ids import ExecKey
from sandloom.telemetry import get_logger
from workers.counters import counters
from workers.doorbell import Doorbell
from workers.lanes import CommandLane, ControlLane, Placed
from workers.pool import Delivery
from workers.self_ping import PING_TASK

log = get_logger("sandloom.workers.reception")

EXEC_TASK = "sandloom.exec"


class Lane(StrEnum):
    """Control lanes: none waits for another, so a cancel never stands behind a large file or a slow release."""

    URGENT = "urgent"
    FILES = "files"
    SEARCH = "search"
    LIFECYCLE = "lifecycle"
    TEMPLATES = "templates"


#: Threads, and how many messages may wait, of each control lane.
LANE_SIZES: Mapping[Lane, tuple[int, int]] = {
    Lane.URGENT: (2, 10_000),
    Lane.FILES: (8, 500),
    Lane.SEARCH: (3, 200),
    Lane.LIFECYCLE: (6, 2_000),
    Lane.TEMPLATES: (2, 100),
}


class ControlLanes:
    """The control lanes of a process."""

    def __init__(self, wanted: tuple[Lane, ...] = tuple(Lane)) -> None:
        self._lanes = {lane: ControlLane(lane.value, *LANE_SIZES[lane]) for lane in wanted}

    def submit(self, lane: Lane, job: Callable[[], None]) -> Placed:
        return self._lanes[lane].submit(job)

    def close(self, timeout_seconds: float) -> None:
        """Do what waits, take nothing more."""
        for lane in self._lanes.values():
            lane.close()
        for lane in self._lanes.values():
            lane.join(timeout_seconds)


class Reception(Protocol):
    """What the consumer hands doorbells to, and the pool every other delivery."""

    def ring(self, doorbell: Doorbell) -> None: ...

    def receive(self, delivery: Delivery) -> None: ...

    def terminate(self, number: int) -> None: ...

    def info(self) -> dict[str, Any]: ...


class Direct(Protocol):
    """Direct execs: admitted first, run when their turn comes (``workers.direct``)."""

    def admit(self, delivery: Delivery) -> ExecKey | None: ...

    def terminate(self, number: int) -> None: ...


class Forwarder(Protocol):
    def forward(self, delivery: Delivery) -> bool:
        """Send it on to the owner; False when it is to be done here."""
        ...


class ControlReception:
    """For a process without commands: beat."""

    def __init__(self, lanes: ControlLanes, tasks: Mapping[str, Lane]) -> None:
        self._lanes = lanes
        self._tasks = tasks

    def ring(self, doorbell: Doorbell) -> None:
        """Nothing here runs commands."""
        counters.add("messages_dropped")

    def receive(self, delivery: Delivery) -> None:
        self._place(delivery)

    def _place(self, delivery: Delivery) -> None:
        lane = self._tasks.get(delivery.task)
        if lane is None:
            drop(delivery, "unknown task")
        elif (placed := self._lanes.submit(lane, delivery.run)) is not Placed.ACCEPTED:
            drop(delivery, placed.value)

    def terminate(self, number: int) -> None:
        """Nothing here can be cancelled."""

    def info(self) -> dict[str, Any]:
        return {"counters": counters.snapshot()}


class NodeReception(ControlReception):
    """For a worker node."""

    def __init__(
        self,
        lanes: ControlLanes,
        tasks: Mapping[str, Lane],
        commands: CommandLane,
        run: Callable[[ExecKey, int], object],
        direct: Direct,
        forwarder: Forwarder,
        dispatch_queue: str,
    ) -> None:
        super().__init__(lanes, tasks)
        self._commands = commands
        self._run = run
        self._direct = direct
        self._forwarder = forwarder
        self._dispatch_queue = dispatch_queue

    def ring(self, doorbell: Doorbell) -> None:
        """Forgotten when there is no room: the row waits."""
        self._commands.submit(doorbell.key, partial(self._run, doorbell.key, doorbell.generation))

    def receive(self, delivery: Delivery) -> None:
        if delivery.task == PING_TASK:
            delivery.run()  # here: behind a lane it would say how busy the lane is
        elif delivery.queue == self._dispatch_queue and delivery.task in self._tasks:
            self._submit(delivery, lambda: self._dispatched(delivery))
        else:
            self._at_home(delivery)

    def _dispatched(self, delivery: Delivery) -> None:
        if self._forwarder.forward(delivery):
            delivery.drop()
        else:
            self._at_home(delivery)

    def _at_home(self, delivery: Delivery) -> None:
        if delivery.task == EXEC_TASK:
            self._submit(delivery, lambda: self._admit(delivery))
        else:
            self._place(delivery)

    def _admit(self, delivery: Delivery) -> None:
        """The row first, then the acknowledgement, then a turn in the command lane."""
        key = self._direct.admit(delivery)
        delivery.acknowledge()
        if key is None:
            delivery.run()  # raises what admission said, so that it becomes the result
        elif self._commands.submit(key, delivery.run, must_run=True) is not Placed.ACCEPTED:
            delivery.drop()

    def _submit(self, delivery: Delivery, job: Callable[[], None]) -> None:
        """``job`` sees to the message; one for which it fails would come again for ever."""

        def safely() -> None:
            try:
                job()
            except Exception as error:
                drop(delivery, type(error).__name__)

        placed = self._lanes.submit(Lane.LIFECYCLE, safely)
        if placed is not Placed.ACCEPTED:
            drop(delivery, placed.value)

    def terminate(self, number: int) -> None:
        self._direct.terminate(number)

    def info(self) -> dict[str, Any]:
        return {**super().info(), "running": self._commands.running, "waiting": self._commands.waiting}


def drop(delivery: Delivery, reason: str) -> None:
    counters.add("messages_dropped")
    log.warning("message dropped", reason=reason, task=str(delivery.task)[:128], queue=delivery.queue[:128])
    delivery.drop()
