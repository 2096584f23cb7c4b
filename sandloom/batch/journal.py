"""What a batch has begun and ended, in a file that outlives the process.

One JSON object per line: first ``{"v", "batch", "jobs"}``, then ``begun`` before anything of an attempt is done,
``opened`` with the generation of a shared sandbox, ``ended`` with the whole result, ``released``. An entry that others
depend on is on the disk before its call returns; calls of several threads share an fsync.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from sandloom.batch.plan import Begun, Ended
from sandloom.batch.retries import Outcome
from sandloom.errors import BatchInvalid

VERSION: Final = 1


@dataclass(slots=True)
class History:
    """Of a journal, without the results. ``sandboxes``: those begun and not released, with the job and attempt that
    used each last; ``generations``: of shared ones."""

    entries: list[Begun | Ended] = field(default_factory=list)
    sandboxes: dict[str, Begun] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)


class Journal:
    """Thread-safe, and locked against other processes until ``close``."""

    def __init__(self, path: Path, file: int, batch: str) -> None:
        self.path = path
        self.batch = batch
        self._file = file
        self._write_lock, self._sync_lock = threading.Lock(), threading.Lock()
        self._written = self._synced = 0
        self._broken: OSError | None = None

    @classmethod
    def open(cls, path: Path, *, jobs_digest: str, new_batch: str, resume: bool) -> Self:
        """The journal of an earlier run when ``resume`` and there is one, else a new one for ``new_batch``.

        Raises BatchInvalid when there is one and it is not to be resumed, or is of other jobs, or in use, and where
        none can be made.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BatchInvalid(f"{path} cannot be written: {error.strerror}; choose another --out.") from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BatchInvalid(f"{path} is in use: another process runs this batch.") from None
            _cut_torn_line(file)
            header = next(_lines(path), None)
            if header is None:
                journal = cls(path, file, new_batch)
                journal._append({"v": VERSION, "batch": new_batch, "jobs": jobs_digest})
                _sync_directory(path.parent)
                return journal
            if not resume:
                raise BatchInvalid(
                    f"{path} is the journal of an earlier run: go on with it by --resume, choose another --out, or"
                    " delete it to run every job again."
                )
            if header.get("v") != VERSION or not isinstance(header.get("batch"), str):
                raise BatchInvalid(f"{path} is not a journal of this release.")
            if header.get("jobs") != jobs_digest:
                raise BatchInvalid(
                    f"{path} is of other jobs or another scope: something has changed since that run. Put the file of"
                    " jobs and --scope back as they were to go on with it, choose another --out, or delete it to run"
                    " every job as it is now."
                )
            return cls(path, file, header["batch"])
        except BaseException:
            os.close(file)
            raise

    def history(self) -> History:
        """Raises BatchInvalid for a damaged journal."""
        found = History()
        for number, entry in enumerate(_lines(self.path), 1):
            try:
                _take(found, entry)
            except (KeyError, TypeError) as error:
                raise BatchInvalid(f"{self.path}: entry {number} is damaged.") from error
        return found

    def results(self) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """(job, attempt, result) of every attempt that has ended, in that order."""
        for entry in _lines(self.path):
            if "ended" in entry:
                yield entry["ended"], entry["attempt"], entry["result"]

    def begun(self, job: str, attempt: int, sandbox: str) -> None:
        self._append({"begun": job, "attempt": attempt, "sandbox": sandbox})

    def opened(self, sandbox: str, generation: int) -> None:
        self._append({"opened": sandbox, "generation": generation})

    def ended(self, job: str, attempt: int, result: Mapping[str, Any]) -> None:
        self._append({"ended": job, "attempt": attempt, "result": dict(result)})

    def released(self, sandbox: str) -> None:
        """Not worth an fsync: a release that is done again does no harm."""
        self._append({"released": sandbox}, durable=False)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, entry: Mapping[str, Any], *, durable: bool = True) -> None:
        data = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with self._write_lock:
            if self._broken is not None:
                raise self._broken
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError as error:
                self._broken = error  # nothing may follow a torn line
                raise
            self._written += 1
            mine = self._written
        if durable:
            with self._sync_lock:
                if self._synced < mine:
                    seen = self._written
                    os.fsync(self._file)
                    self._synced = seen


def _take(found: History, entry: Mapping[str, Any]) -> None:
    if "begun" in entry:
        begun = Begun(entry["begun"], entry["attempt"])
        found.entries.append(begun)
        found.sandboxes[entry["sandbox"]] = begun
    elif "ended" in entry:
        result = entry["result"]
        outcome = Outcome(result["status"], result["reason"], result["error"])
        found.entries.append(Ended(entry["ended"], entry["attempt"], outcome))
    elif "opened" in entry:
        found.generations[entry["opened"]] = entry["generation"]
    elif "released" in entry:
        found.sandboxes.pop(entry["released"], None)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                entry = json.loads(line)
            except ValueError:
                raise BatchInvalid(f"{path}: entry {number} is damaged.") from None
            if not isinstance(entry, dict):
                raise BatchInvalid(f"{path}: entry {number} is damaged.")
            yield entry


def _cut_torn_line(file: int) -> None:
    """A process that was killed while it wrote leaves the beginning of a line."""
    size = end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65_536)
        place = os.pread(file, end - start, start).rfind(b"\n")
        if place >= 0:
            end = start + place + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
