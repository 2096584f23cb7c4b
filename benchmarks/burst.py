"""What one measurement is, and how two are compared."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Burst:
    """``count`` runs: seconds of each, seconds from the first start to the last end, CPU seconds of all."""

    seconds: Sequence[float]
    wall_seconds: float
    cpu_seconds: float

    @property
    def count(self) -> int:
        return len(self.seconds)

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        return quantile(self.seconds, 0.95)

    @property
    def per_second(self) -> float:
        return self.count / self.wall_seconds

    @property
    def cpu_each(self) -> float:
        return self.cpu_seconds / self.count


class Target(Protocol):
    """Something that runs a command ``count`` times, ``at_once`` of them at any time."""

    name: str

    def burst(self, count: int, at_once: int) -> Burst: ...


def quantile(values: Sequence[float], at: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(at * len(ordered)), len(ordered) - 1)]


def run_burst(work: Callable[[int], object], count: int, at_once: int, cpu_seconds: Callable[[], float]) -> Burst:
    """``work(lane)`` in ``at_once`` threads. What it raises ends the run."""
    cpu, began = cpu_seconds(), time.perf_counter()
    left = threading.Semaphore(count)

    def lane(number: int) -> list[float]:
        seconds = []
        while left.acquire(blocking=False):
            started = time.perf_counter()
            work(number)
            seconds.append(time.perf_counter() - started)
        return seconds

    with ThreadPoolExecutor(at_once) as pool:
        seconds = [value for values in pool.map(lane, range(at_once)) for value in values]
    return Burst(seconds, time.perf_counter() - began, cpu_seconds() - cpu)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of pairwise ratios and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(pairs: Sequence[tuple[Burst, Burst]], of: Callable[[Burst], float]) -> Ratio:
    """``pairs`` are (target, floor), measured one right after the other."""
    found = [of(target) / of(floor) for target, floor in pairs]
    # The same numbers give the same interval.
    choose = random.Random(0)
    medians = [statistics.median(choose.choices(found, k=len(found))) for _ in range(_RESAMPLES)]
    return Ratio(statistics.median(found), quantile(medians, 0.025), quantile(medians, 0.975))


def alternate(
    target: Target, floor: Target, pairs: int, count: int, *, at_once: int, floor_at_once: int
) -> list[tuple[Burst, Burst]]:
    """Pairs (target, floor), each side first in every other one; a short burst before does not count."""
    found = []
    target.burst(at_once, at_once)
    for number in range(pairs):
        if number % 2:
            ours = target.burst(count, at_once)
            found.append((ours, floor.burst(count, floor_at_once)))
        else:
            bare = floor.burst(count, floor_at_once)
            found.append((target.burst(count, at_once), bare))
    return found
