"""Which worker a new sandbox goes to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live worker of the right profile with a free slot."""

    worker_id: str
    epoch: int
    isolation_rank: int
    reserved: int
    capacity: int


def rank(candidates: Sequence[Candidate], tie_break: Sequence[float]) -> list[Candidate]:
    """Candidates, best first: strongest isolation, then the smallest share of slots taken, then ``tie_break``.

    ``tie_break`` has a number in 0..1 for each candidate, so that API replicas that look at the same moment do not all
    choose the same worker.
    """
    order = sorted(
        range(len(candidates)),
        key=lambda i: (
            -candidates[i].isolation_rank,
            candidates[i].reserved / max(1, candidates[i].capacity),
            tie_break[i],
        ),
    )
    return [candidates[i] for i in order]
