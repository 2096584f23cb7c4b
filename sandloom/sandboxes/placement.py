"""Which worker a new sandbox goes to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: A worker may be given this many more than it should have since it was looked at, and is still taken.
SLACK = 1

#: Hints of how busy workers are, by id: 0 idles, above 1 is more than busy. May know nothing and may be wrong.
Loads = Callable[[Sequence[str]], Mapping[str, float]]


class Profile(NamedTuple):
    """What a worker must serve to be chosen."""

    profile_id: str
    declared_hash: str
    environment: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live worker of the right profile with a free slot."""

    worker_id: str
    epoch: int
    isolation_rank: int
    reserved: int
    capacity: int

    @property
    def share(self) -> float:
        """Of its slots, how many are taken."""
        return self.reserved / max(1, self.capacity)


def no_loads(worker_ids: Sequence[str]) -> Mapping[str, float]:
    """Without a registry nobody knows how busy a worker is."""
    return {}


def rank(candidates: Sequence[Candidate], loads: Mapping[str, float], chance: Sequence[float]) -> list[Candidate]:
    """Candidates, best first: strongest isolation, the smallest share of slots taken, the least load, ``chance``.

    A worker whose load nobody knows counts as idle. ``chance`` has a number in 0..1 for each candidate, so that API
    replicas that look at the same moment do not all choose the same worker.
    """
    order = sorted(
        range(len(candidates)),
        key=lambda i: (
            -candidates[i].isolation_rank,
            candidates[i].share,
            loads.get(candidates[i].worker_id, 0.0),
            chance[i],
        ),
    )
    return [candidates[i] for i in order]


def bound(ranked: Sequence[Candidate]) -> int | None:
    """How many slots of the best one may be taken by now, that it is still better than the next; None: any number."""
    best, *others = ranked
    rival = next((other for other in others if other.isolation_rank == best.isolation_rank), None)
    if rival is None:
        return None
    return max(best.reserved, int(rival.share * best.capacity)) + SLACK
