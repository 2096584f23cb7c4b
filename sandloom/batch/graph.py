"""What jobs wait for: names that must exist once, and no circles. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from sandloom.batch.jobs import Job, Problem


def check(jobs: Sequence[Job]) -> list[Problem]:
    """Ids that are taken, dependencies that are not there, and circles, all of them."""
    first: dict[str, Job] = {}
    problems: list[Problem] = []
    for job in jobs:
        if job.id in first:
            problems.append(Problem(job.line, "id", f"{job.id} is the id of line {first[job.id].line}, too"))
        first.setdefault(job.id, job)
    for job in jobs:
        problems += (
            Problem(job.line, "depends_on", f"there is no job {name}") for name in job.depends_on if name not in first
        )
    waits = {job.id: [name for name in job.depends_on if name in first] for job in first.values()}
    for circle in _circles(waits):
        job = min((first[name] for name in circle), key=lambda each: each.line)
        start = circle.index(job.id)
        way = " > ".join([*circle[start:], *circle[:start], job.id])
        problems.append(Problem(job.line, "depends_on", f"{job.id} waits for itself, by {way}"))
    return problems


def dependents(waits: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """For every job those that wait for it. ``waits``: for every job those that it waits for, each once."""
    found: dict[str, list[str]] = {name: [] for name in waits}
    for name, others in waits.items():
        for other in others:
            found[other].append(name)
    return found


def _circles(waits: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Circles that have no job in common; every other one has a job in common with one of these."""
    waiting = dependents(waits)
    open_count = {name: len(others) for name, others in waits.items()}
    stuck = dict.fromkeys(waits)
    free = [name for name, count in open_count.items() if count == 0]
    # Each waits for the next one, so that what is no longer stuck is the end of it.
    path: dict[str, None] = {}
    while True:
        while free:
            name = free.pop()
            if name not in stuck:
                continue
            del stuck[name]
            for other in waiting[name]:
                open_count[other] -= 1
                if open_count[other] == 0:
                    free.append(other)
        if not stuck:
            return
        while path and next(reversed(path)) not in stuck:
            path.popitem()
        name = path.popitem()[0] if path else next(iter(stuck))
        while name not in path:
            path[name] = None
            name = next(other for other in waits[name] if other in stuck)
        free = [*takewhile(name.__ne__, reversed(path)), name]
        yield free[::-1]
