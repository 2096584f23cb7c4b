"""One attempt of a job, from wherever it stands to its result."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sandloom.batch.jobs import WORKSPACE, Job
from sandloom.batch.journal import Journal
from sandloom.batch.plan import Attempt
from sandloom.batch.results import of_record, of_refusal, refusal
from sandloom.batch.retries import Outcome
from sandloom.batch.ways import Box, Names, Way
from sandloom.contracts.rest import RouteAnswer
from sandloom.errors import (
    Category,
    DirectTasksOff,
    EnvelopeRefused,
    FileKindUnsupported,
    FileMissing,
    FileTooLarge,
    SandboxSuspended,
    SandloomError,
    StaleGeneration,
    StaleRoute,
    Unauthorized,
    Unavailable,
)
from sandloom.sdk.results import Result

_LONGEST_PAUSE_SECONDS: Final = 5.0
_RELEASE_TRIES: Final = 3
#: The service itself cannot be used: at once, or when patience is over, that ends the run and not the job.
_UNUSABLE: Final = (Unauthorized, Unavailable, EnvelopeRefused, DirectTasksOff)
#: The attempt is looked at anew, from the record of its exec on.
_MOVED: Final = (StaleRoute, StaleGeneration, SandboxSuspended)


@dataclass(frozen=True, slots=True)
class Places:
    """``inputs``: what relative paths of inputs start from. ``outputs``: a directory per job is made in it."""

    inputs: Path
    outputs: Path


class Attempts:
    """Thread-safe. ``patience_seconds``: how long an attempt goes on while the service has no place or no answer.
    ``generations``: of shared sandboxes, as earlier runs knew them."""

    def __init__(
        self,
        way: Way,
        journal: Journal,
        places: Places,
        *,
        patience_seconds: float,
        generations: Mapping[str, int] | None = None,
    ) -> None:
        self._way = way
        self._journal = journal
        self._places = places
        self._patience_seconds = patience_seconds
        self._generations = dict(generations or {})
        self._lock = threading.Lock()

    def names(self, attempt: Attempt) -> Names:
        """Of its own sandbox, or of the one that the jobs of its key share."""
        batch, job = self._journal.batch, attempt.job
        own = f"{batch}-{job.id}-{attempt.number}"
        return Names(own if job.sandbox is None else shared_name(batch, job.sandbox), own)

    def carry_out(self, attempt: Attempt) -> Outcome:
        """Its outcome, which is in the journal. A sandbox of its own is released.

        Raises Unavailable when the service stays away, and Unauthorized: then the attempt is left as it is, for
        another run of the batch to go on with.
        """
        names = self.names(attempt)
        if not attempt.uncertain:
            self._journal.begun(attempt.job.id, attempt.number, names.sandbox_id)
        outcome = self._to_the_end(attempt, names)
        self._journal.ended(attempt.job.id, attempt.number, outcome.document or {})
        if attempt.job.sandbox is None:
            self.release(names.sandbox_id)
        return outcome

    def release(self, sandbox_id: str) -> None:
        """Best effort: what is not in the journal as released is released by another run, or by the service."""
        for failures in range(_RELEASE_TRIES):
            try:
                self._way.release(sandbox_id)
                self._journal.released(sandbox_id)
                return
            except SandloomError as error:
                if error.category is not Category.WAIT:
                    return
                time.sleep(_pause_seconds(error, failures))

    def _to_the_end(self, attempt: Attempt, names: Names) -> Outcome:
        patience = _Patience(self._patience_seconds)
        uncertain, failures = attempt.uncertain, 0
        while True:
            try:
                return self._once(attempt, names, uncertain, patience)
            except _UNUSABLE as error:
                if error.category is not Category.WAIT or patience.over:
                    raise
                failure: SandloomError = error
            except SandloomError as error:
                may_pass = error.category is Category.WAIT or isinstance(error, _MOVED)
                if not may_pass or patience.over:
                    return refusal(attempt.job, attempt.number, names, error)
                failure = error
            uncertain, failures = True, failures + 1
            time.sleep(_pause_seconds(failure, failures))

    def _once(self, attempt: Attempt, names: Names, uncertain: bool, patience: _Patience) -> Outcome:
        job = attempt.job
        box: Box | None = None
        record = self._way.find(names) if uncertain else None
        if record is None:
            box = self._way.open(names.sandbox_id)
            if job.sandbox is not None and not self._still_there(names.sandbox_id, box.route):
                return of_refusal(job, attempt.number, names, None, f"the files of sandbox {job.sandbox} are gone")
            try:
                inputs = self._read(job)
            except OSError as error:
                return of_refusal(job, attempt.number, names, None, f"{error.filename}: {error.strerror}")
            if job.templates:
                box.attach(job.templates)
            for place, (content, mode) in inputs.items():
                box.put(place, content, mode)
            patience.renew()
            record = box.run(self._command(job, names))
        while not record.finished:
            patience.renew()
            record = self._way.wait(names)
        patience.renew()
        saved, missing = self._collect(job, names, record, box)
        return of_record(job, attempt.number, names, record, saved, missing)

    def _still_there(self, sandbox_id: str, route: RouteAnswer) -> bool:
        """Whether a shared sandbox has the files that jobs before left in it."""
        with self._lock:
            known = self._generations.get(sandbox_id)
        if known == route.generation:
            return True
        if known is not None and route.workspace not in ("kept", "restored"):
            return False
        self._journal.opened(sandbox_id, route.generation)
        with self._lock:
            self._generations[sandbox_id] = route.generation
        return True

    def _read(self, job: Job) -> dict[str, tuple[bytes, int]]:
        """Contents and modes of its inputs, by their place."""
        found = {}
        for place, local in job.inputs.items():
            path = self._places.inputs / local
            found[place] = (path.read_bytes(), 0o700 if path.stat().st_mode & 0o100 else 0o600)
        return found

    def _command(self, job: Job, names: Names) -> Mapping[str, Any]:
        labels = {"batch": self._journal.batch, "job": job.id, **(job.command.get("labels") or {})}
        return {**job.command, "exec_id": names.exec_id, "labels": labels}

    def _collect(self, job: Job, names: Names, record: Result, box: Box | None) -> tuple[list[str], str | None]:
        if not job.outputs or record.status == "WORKER_LOST" or record.started_at is None:
            return [], None
        box = box or self._way.open(names.sandbox_id)
        saved: list[str] = []
        missing = None
        for place in job.outputs:
            local = self._places.outputs / job.id / PurePosixPath(place).relative_to(WORKSPACE)
            local.parent.mkdir(parents=True, exist_ok=True)
            try:
                box.fetch(place, local)
                saved.append(place)
            except (FileMissing, FileKindUnsupported, FileTooLarge) as error:
                missing = missing or f"{place}: {error.detail}"
        return saved, missing


def shared_name(batch: str, key: str) -> str:
    """The id of the sandbox that the jobs of a key share; no attempt's own can be the same."""
    return f"{batch}:{key}"


class _Patience:
    """How long nothing but failures may follow one another."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._until = time.monotonic() + self._seconds

    @property
    def over(self) -> bool:
        return time.monotonic() > self._until


def _pause_seconds(error: SandloomError, failures: int) -> float:
    """Longer from failure to failure, at least what the service asks for, and not in step with other attempts."""
    wanted = max(0.2 * 2.0 ** min(failures, 8), float(error.retry_after_seconds or 0))
    return min(wanted, _LONGEST_PAUSE_SECONDS) * random.uniform(0.6, 1.0)
