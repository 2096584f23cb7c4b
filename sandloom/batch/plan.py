"""Which job is next, and what its end means for the others. Pure: told what happened, it says what to do."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandloom.batch.graph import dependents
from sandloom.batch.jobs import Job
from sandloom.batch.retries import Outcome, Retries


class State(StrEnum):
    """``HELD``: waits for other jobs; ``READY``: for a place, or for the sandbox that it shares."""

    HELD = "held"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.SKIPPED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """``number`` from 1. ``uncertain``: it was begun before, and how far it came is not known here."""

    job: Job
    number: int
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ended:
    job: str
    attempt: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Final:
    """A job that is through; ``outcome`` is None for one that was skipped because of ``because``."""

    job: Job
    state: State
    attempts: int
    outcome: Outcome | None = None
    because: str | None = None


class Plan:
    """Not thread-safe. ``jobs`` must have passed ``graph.check``."""

    def __init__(self, jobs: Sequence[Job], retries: Retries) -> None:
        self._retries = retries
        self._jobs = {job.id: job for job in jobs}
        self._place = {job.id: index for index, job in enumerate(jobs)}
        self._dependents = dependents({job.id: job.depends_on for job in jobs})
        self._missing = {job.id: len(job.depends_on) for job in jobs}
        self._attempts = dict.fromkeys(self._jobs, 0)
        self.states = dict.fromkeys(self._jobs, State.HELD)
        self.counts = dict.fromkeys(State, 0) | {State.HELD: len(jobs)}
        self._resumed: deque[Attempt] = deque()
        # Fresh jobs in the order of the file; those that are tried again come after them.
        self._ready: list[tuple[int, int, str]] = []
        self._busy: set[str] = set()
        self._parked: dict[str, list[tuple[int, int, str]]] = {}
        self._open_of_key: dict[str, int] = {}
        for job in jobs:
            if job.sandbox is not None:
                self._open_of_key[job.sandbox] = self._open_of_key.get(job.sandbox, 0) + 1
            if not job.depends_on:
                self._make_ready(job.id)

    @property
    def finished(self) -> bool:
        return sum(self.counts[state] for state in FINAL) == len(self._jobs)

    @property
    def total(self) -> int:
        return len(self._jobs)

    def key_is_done(self, key: str) -> bool:
        """Whether no job will use this shared sandbox any more."""
        return self._open_of_key[key] == 0

    def is_running(self, name: str, attempt: int) -> bool:
        return self.states[name] is State.RUNNING and self._attempts[name] == attempt

    def begin(self) -> Attempt | None:
        """The next attempt, which counts as running from now on; None while there is none."""
        if self._resumed:
            return self._resumed.popleft()
        while self._ready:
            entry = heapq.heappop(self._ready)
            name = entry[2]
            if self.states[name] is not State.READY:
                continue
            job = self._jobs[name]
            if job.sandbox in self._busy:
                heapq.heappush(self._parked.setdefault(str(job.sandbox), []), entry)
                continue
            self._run(job, self._attempts[name] + 1)
            return Attempt(job, self._attempts[name])
        return None

    def end(self, name: str, outcome: Outcome) -> list[Final]:
        """What the end of the running attempt decided, for this job and for those that waited for it."""
        job = self._jobs[name]
        again = self._retries.again(outcome, self._attempts[name], job.retries, job.retry_on)
        return self._end(job, outcome, again)

    def restore(self, history: Iterable[Begun | Ended]) -> list[Final]:
        """Take over what an earlier run has written down, in its order. Attempts that were begun and not ended come
        out of ``begin`` first, as uncertain. Entries of jobs that are unknown raise KeyError."""
        entries = list(history)
        last = {entry.job: entry.attempt for entry in entries if isinstance(entry, Begun)}
        finals: list[Final] = []
        for entry in entries:
            job = self._jobs[entry.job]
            if isinstance(entry, Begun):
                self._run(job, entry.attempt)
            elif last.get(entry.job, 0) > entry.attempt:
                finals += self._end(job, entry.outcome, again=True)
            else:
                finals += self.end(entry.job, entry.outcome)
        for name, state in self.states.items():
            if state is State.RUNNING:
                self._resumed.append(Attempt(self._jobs[name], self._attempts[name], uncertain=True))
        return finals

    def _run(self, job: Job, number: int) -> None:
        self._attempts[job.id] = number
        self._move(job.id, State.RUNNING)
        if job.sandbox is not None:
            self._busy.add(job.sandbox)

    def _end(self, job: Job, outcome: Outcome, again: bool) -> list[Final]:
        self._free(job)
        if again:
            self._make_ready(job.id)
            return []
        finals = [self._finish(job, State.SUCCEEDED if outcome.ok else State.FAILED, outcome=outcome)]
        if not outcome.ok:
            return finals + self._skip_after(job)
        for name in self._dependents[job.id]:
            self._missing[name] -= 1
            if self._missing[name] == 0 and self.states[name] is State.HELD:
                self._make_ready(name)
        return finals

    def _skip_after(self, failed: Job) -> list[Final]:
        finals = []
        stack = [(failed.id, name) for name in reversed(self._dependents[failed.id])]
        while stack:
            because, name = stack.pop()
            if self.states[name] in FINAL:
                continue
            finals.append(self._finish(self._jobs[name], State.SKIPPED, because=because))
            stack += [(name, after) for after in reversed(self._dependents[name])]
        return finals

    def _free(self, job: Job) -> None:
        """Its shared sandbox is free for the next of those that wait for it."""
        if job.sandbox is None:
            return
        self._busy.discard(job.sandbox)
        if parked := self._parked.get(job.sandbox):
            heapq.heappush(self._ready, heapq.heappop(parked))

    def _finish(self, job: Job, state: State, *, outcome: Outcome | None = None, because: str | None = None) -> Final:
        self._move(job.id, state)
        if job.sandbox is not None:
            self._open_of_key[job.sandbox] -= 1
        return Final(job, state, self._attempts[job.id], outcome, because)

    def _make_ready(self, name: str) -> None:
        self._move(name, State.READY)
        heapq.heappush(self._ready, (self._attempts[name], self._place[name], name))

    def _move(self, name: str, state: State) -> None:
        self.counts[self.states[name]] -= 1
        self.counts[state] += 1
        self.states[name] = state
