"""One seed: load, strikes, rest, checks."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import checks
from tests.chaos.book import Book
from tests.chaos.caller import Caller
from tests.chaos.faults import BESIDE, LONG, OF_RABBITMQ, QUICK, Fault
from tests.chaos.fleet import ChaosFleet, Servers
from tests.chaos.load import OPERATIONS
from tests.services.process import ROOT

#: Between strikes of a lane; the lanes strike beside each other.
PAUSE_SECONDS, AT_ONCE_SECONDS, NOW_AND_THEN_SECONDS = (0.5, 3.0), (0.0, 0.5), (2.0, 12.0)
#: A run in which nothing is accepted any more ends all the same.
LONGEST_SECONDS = 1800
#: With so many commands everything that callers do has been done.
WHOLE = 1000


@dataclass(frozen=True)
class Plan:
    """``strikes`` of each fault, of all or of those named; the load goes on until they are done and ``commands`` are
    accepted. ``first_fault_ends``: one broken promise is enough."""

    seed: int
    commands: int
    strikes: int
    callers: int
    faults: tuple[str, ...] | None = None
    first_fault_ends: bool = False


@dataclass
class Report:
    plan: Plan
    book: Book
    strikes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0

    def __str__(self) -> str:
        struck = ", ".join(f"{name} {number}" for name, number in sorted(self.strikes.items()))
        called = ", ".join(f"{name} {number}" for name, number in self.book.calls.most_common())
        verdict = "\n".join(f"  FAULT {fault}" for fault in self.faults[:40]) or "  every promise was kept"
        found = ", ".join(f"{name} {number}" for name, number in self.book.found.most_common()) or "none"
        head = f"seed {self.plan.seed}: {self.book.accepted} commands accepted in {self.seconds:.0f} s"
        return f"{head}\n  strikes: {struck}\n  calls: {called}\n  files of moved sandboxes: {found}\n{verdict}"


def chaos(plan: Plan, servers: Servers, directory: Path, tree: Path = ROOT) -> Report:
    """``directory`` must let sandboxes through, and is the caller's to remove."""
    kept = directory / "kept"
    kept.mkdir()
    book = Book(kept)
    report = Report(plan, book)
    begun = time.monotonic()
    with _running(servers, directory, tree) as fleet:
        callers = _strike_under_load(plan, fleet, book, report)
        report.seconds = time.monotonic() - begun
        if not ((report.faults or book.faults) and plan.first_fault_ends):
            report.faults += _examine(fleet, book, callers)
            report.faults += _not_tried(plan, book)
        report.faults += book.faults
    return report


@contextmanager
def _running(servers: Servers, directory: Path, tree: Path) -> Iterator[ChaosFleet]:
    fleet = ChaosFleet(servers, directory, tree)
    try:
        fleet.wait_started()
        yield fleet
    finally:
        fleet.close()


def _strike_under_load(plan: Plan, fleet: ChaosFleet, book: Book, report: Report) -> list[Caller]:
    rng = random.Random(plan.seed)
    stop, broken = threading.Event(), threading.Event()
    callers = [
        Caller(fleet, book, f"c{number}", random.Random(rng.random()), stop, OPERATIONS)
        for number in range(plan.callers)
    ]
    quick = QUICK | (OF_RABBITMQ if fleet.servers.broker is not None else {})
    lanes = [
        _Lane(fleet, plan, report, random.Random(rng.random()), faults, pause, broken)
        for faults, pause in ((quick, PAUSE_SECONDS), (LONG, AT_ONCE_SECONDS), (BESIDE, NOW_AND_THEN_SECONDS))
    ]
    threads = [threading.Thread(target=caller.work, daemon=True) for caller in callers]
    strikers = [threading.Thread(target=lane.strike_all, daemon=True) for lane in lanes]
    for thread in (*threads, *strikers):
        thread.start()
    until_seconds = time.monotonic() + LONGEST_SECONDS
    while any(thread.is_alive() for thread in strikers) or book.accepted < plan.commands:
        if broken.wait(0.2) or (book.faults and plan.first_fault_ends):
            broken.set()
            break
        if time.monotonic() > until_seconds:
            report.faults.append(f"only {book.accepted} commands were accepted in {LONGEST_SECONDS} s")
            broken.set()
            break
    stop.set()
    for thread in (*strikers, *threads):
        thread.join(LONGEST_SECONDS)
    print(f"  {book.accepted:5} accepted; the load ends", flush=True)
    return callers


@dataclass
class _Lane:
    """Strikes one after the other."""

    fleet: ChaosFleet
    plan: Plan
    report: Report
    rng: random.Random
    faults: Mapping[str, Fault]
    pause_seconds: tuple[float, float]
    broken: threading.Event

    def strike_all(self) -> None:
        wanted = self.plan.faults
        order = [name for name in self.faults if wanted is None or name in wanted] * self.plan.strikes
        self.rng.shuffle(order)
        for name in order:
            if self.broken.wait(self.rng.uniform(*self.pause_seconds)):
                return
            try:
                what = self.faults[name](self.fleet, self.rng)
            except Exception as error:
                self.report.faults.append(f"{name}: {error}"[:2000])
                self.broken.set()
                return
            self.report.strikes[name] += 1
            print(f"  {self.report.book.accepted:5} accepted; {name} {what}".rstrip(), flush=True)


def _not_tried(plan: Plan, book: Book) -> list[str]:
    """A load in which something never succeeded shows nothing of it."""
    if plan.faults is not None or plan.commands < WHOLE:
        return []
    moves = [] if book.found["restored"] else ["no sandbox was restored on another worker"]
    return [*moves, *(f"{name} never succeeded" for name in OPERATIONS if name not in book.calls)]


def _examine(fleet: ChaosFleet, book: Book, callers: list[Caller]) -> list[str]:
    fleet.wait_started()
    found = [*checks.come_to_rest(fleet, book)]
    for caller in callers:
        caller.last_look(checks.REST_SECONDS)
    found += [*checks.wake_all(fleet), *checks.records(fleet, book), *checks.losses(fleet, book)]
    print("  everything has ended; what is left?", flush=True)
    return [*found, *checks.leftovers(fleet), *checks.logs(fleet)]
