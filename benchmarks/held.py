"""File reads and cancels while a sleeping command is in every slot, against the same with the slots free."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

from rich.table import Table

from benchmarks.burst import quantile
from benchmarks.service import SLOTS, Service
from benchmarks.wire import Connection
from benchmarks.workloads import Box

ROUNDS = 10
#: Reads, and cancels, of either kind in each round.
COUNT = 25
_HOLDERS = 8
_SIZE_BYTES = 4096
_WAIT_SECONDS = 60
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Samples:
    """Seconds of each call."""

    reads: list[float] = field(default_factory=list)
    cancels: list[float] = field(default_factory=list)


class Sleeper:
    """A command that runs until it is cancelled."""

    def __init__(self, connection: Connection, box: Box) -> None:
        self._connection = connection
        name = f"sleep-{next(_NUMBERS)}"
        self._path = f"{box.path}/exec/{name}"
        self._cancel = f"{self._path}/cancel?generation={box.generation}"
        body = {"generation": box.generation, "exec_id": name, "argv": ["sleep", "3600"], "exec_scope": name}
        connection.call("POST", f"{box.path}/exec", {**body, "background": True})

    def await_running(self) -> None:
        while (status := self._connection.call("GET", self._path)["status"]) != "RUNNING":
            if status != "QUEUED":
                raise SystemExit(f"a command that sleeps is {status}")
            time.sleep(0.01)

    def cancel(self) -> float:
        """Seconds from the request until the record says that nothing of the command is left."""
        began = time.perf_counter()
        self._connection.call("POST", self._cancel)
        status = self._connection.call("GET", f"{self._path}?wait={_WAIT_SECONDS}")["status"]
        seconds = time.perf_counter() - began
        if status != "CANCELLED":
            raise SystemExit(f"a cancelled command is {status}")
        return seconds


class Held:
    """One connection; ``_HOLDERS`` sandboxes that fill the slots, and one that is read from."""

    def __init__(self, service: Service) -> None:
        self._connection = Connection(service.url, service.token)
        self._boxes = [Box(self._connection, f"hold-{number}") for number in range(_HOLDERS)]
        self._data = bytes(range(256)) * (_SIZE_BYTES // 256)
        self._reader = Box(self._connection, "reader")
        self._reader.write(self._data)

    def measure(self) -> tuple[Samples, Samples]:
        """(idle, held), in turns; idle goes first in every other round."""
        idle, held = Samples(), Samples()
        self._idle(Samples(), 5)
        for number in range(ROUNDS):
            for samples in (idle, held) if number % 2 else (held, idle):
                if samples is idle:
                    self._idle(samples, COUNT)
                else:
                    self._held(samples, COUNT)
        self._connection.close()
        return idle, held

    def _idle(self, samples: Samples, count: int) -> None:
        for _ in range(count):
            samples.reads.append(self._read())
            samples.cancels.append(self._started(self._boxes[0]).cancel())

    def _held(self, samples: Samples, count: int) -> None:
        sleepers = [Sleeper(self._connection, self._boxes[number % _HOLDERS]) for number in range(SLOTS)]
        for sleeper in sleepers:
            sleeper.await_running()
        for number in range(count):
            samples.reads.append(self._read())
            # The slot that this frees is taken again before anything else is measured.
            place = number % SLOTS
            samples.cancels.append(sleepers[place].cancel())
            sleepers[place] = self._started(self._boxes[place % _HOLDERS])
        for sleeper in sleepers:
            sleeper.cancel()

    def _started(self, box: Box) -> Sleeper:
        sleeper = Sleeper(self._connection, box)
        sleeper.await_running()
        return sleeper

    def _read(self) -> float:
        began = time.perf_counter()
        self._reader.read(self._data)
        return time.perf_counter() - began


def report(name: str, idle: Samples, held: Samples) -> Table:
    table = Table(
        "what", "idle p50 ms", "idle p95 ms", "held p50 ms", "held p95 ms", "held p95 : idle p95", "samples each",
        title=f"{name}: every slot held by sleep", title_justify="left",
    )  # fmt: skip
    for what, free, taken in (
        (f"file read, {_SIZE_BYTES // 1024} KiB", idle.reads, held.reads),
        ("cancel to the end of the command", idle.cancels, held.cancels),
    ):
        numbers = [1e3 * quantile(values, at) for values in (free, taken) for at in (0.5, 0.95)]
        compared = f"{numbers[3] / numbers[1]:.2f}"
        table.add_row(what, *(f"{number:.1f}" for number in numbers), compared, f"{min(len(free), len(taken))}")
    return table
