"""What jobs wait for: names that must exist once, and no circles. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sandloom.batch.jobs import Job, Problem


def check(jobs: Sequence[Job]) -> list[Problem]:
    """Ids that are taken, dependencies that are not there, and circles."""
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
    return problems or _circles(jobs)


def dependents(jobs: Sequence[Job]) -> dict[str, list[str]]:
    """For every job those that wait for it, in the order of the file."""
    found: dict[str, list[str]] = {job.id: [] for job in jobs}
    for job in jobs:
        for name in job.depends_on:
            found[name].append(job.id)
    return found


def _circles(jobs: Sequence[Job]) -> list[Problem]:
    waiting = dependents(jobs)
    open_count = {job.id: len(job.depends_on) for job in jobs}
    free = [name for name, count in open_count.items() if count == 0]
    while free:
        for name in waiting[free.pop()]:
            open_count[name] -= 1
            if open_count[name] == 0:
                free.append(name)
    stuck = {name for name, count in open_count.items() if count}
    return [
        Problem(job.line, "depends_on", f"{job.id} waits for itself, by {_circle(job, jobs, stuck)}")
        for job in jobs
        if job.id in stuck and job.id == min(stuck)
    ]


def _circle(start: Job, jobs: Sequence[Job], stuck: set[str]) -> str:
    """Some circle that is reached from ``start`` by what it waits for."""
    by_id = {job.id: job for job in jobs}
    path: list[str] = []
    name = start.id
    while name not in path:
        path.append(name)
        name = next(each for each in by_id[name].depends_on if each in stuck)
    return " > ".join([*path[path.index(name) :], name])
