"""A batch: its files, and one run of it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from sandloom.batch import graph
from sandloom.batch.attempts import Attempts, Places, shared_name
from sandloom.batch.jobs import Job, Problem, parse
from sandloom.batch.journal import History, Journal
from sandloom.batch.junit import junit
from sandloom.batch.plan import Final, Plan, State
from sandloom.batch.progress import Meter, Progress
from sandloom.batch.results import of_skip
from sandloom.batch.retries import Retries
from sandloom.batch.runner import Runner
from sandloom.batch.ways import Names, Way
from sandloom.errors import BatchInvalid, SandloomError

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """``results``: JSON lines, one per job that is through; the journal lies beside it. ``outputs``: a directory."""

    results: Path
    outputs: Path
    junit: Path | None = None
    concurrency: int = 8
    retries: Retries = field(default_factory=Retries)
    patience_seconds: float = 600.0
    resume: bool = False

    @property
    def journal(self) -> Path:
        return self.results.with_name(f"{self.results.name}.journal")


@dataclass(frozen=True, slots=True)
class Summary:
    """``statuses``: jobs by their status, those of earlier runs too; ``seconds`` of this run."""

    total: int
    statuses: Mapping[str, int]
    seconds: float

    @property
    def ok(self) -> bool:
        return self.statuses.get("SUCCEEDED", 0) == self.total


class Batch:
    """Read and checked by the constructor, before anything runs. Raises BatchInvalid, whose ``problems`` in ``extra``
    name line and field, and OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes()
        self.digest = hashlib.sha256(content).hexdigest()
        self.jobs, problems = parse(content.splitlines(keepends=True))
        problems += [*graph.check(self.jobs), *_missing_inputs(self.jobs, path.parent)]
        if problems:
            lines = [str(problem) for problem in sorted(problems, key=lambda problem: problem.line)]
            count = "one problem" if len(lines) == 1 else f"{len(lines)} problems"
            raise BatchInvalid(f"{path} has {count}; nothing was run", problems=lines)
        if not self.jobs:
            raise BatchInvalid(f"{path} holds no job")

    def run(
        self,
        way: Way,
        options: Options,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_failure: Callable[[Document], None] = lambda result: None,
    ) -> Summary:
        """To the end of every job. Both callbacks are called by this thread, ``on_progress`` about twice a second.

        Raises BatchInvalid when the journal forbids it, and Unavailable or Unauthorized when the service cannot be
        used: another run with ``resume`` then goes on, as after any other end of this process. An error with an
        ``exit_code`` of 2 left everything as it was.
        """
        if self.path.resolve() in {path.resolve() for path in (options.results, options.junit) if path is not None}:
            raise BatchInvalid(f"{self.path} holds the jobs; results need another file")
        _reach(way)
        journal = Journal.open(
            options.journal,
            jobs_digest=f"{self.digest} {way.scope}",
            new_batch=f"b{secrets.token_hex(6)}",
            resume=options.resume,
        )
        try:
            history = journal.history()
            plan = Plan(self.jobs, options.retries)
            restored = _restored(plan, history)
            places = Places(self.path.parent, options.outputs)
            attempts = Attempts(
                way, journal, places,
                patience_seconds=options.patience_seconds, generations=history.generations,
            )  # fmt: skip
            with _Results(options.results) as results:
                run = _Run(plan, results, on_progress, on_failure)
                run.take_over(restored, journal.results())
                runner = Runner(
                    plan, attempts, run,
                    concurrency=options.concurrency, shared=lambda key: shared_name(journal.batch, key),
                )  # fmt: skip
                runner.run(_leftovers(self.jobs, plan, history))
                run.tick()
            summary = Summary(plan.total, results.statuses, run.seconds)
            if options.junit is not None:
                write_junit(options.junit, self.path.stem, options.results, summary)
            return summary
        finally:
            journal.close()


class _Run:
    """Writes results down as jobs get through, and tells."""

    def __init__(
        self,
        plan: Plan,
        results: _Results,
        on_progress: Callable[[Progress], None],
        on_failure: Callable[[Document], None],
    ) -> None:
        self._plan = plan
        self._results = results
        self._on_progress, self._on_failure = on_progress, on_failure
        self._began = time.monotonic()
        self._meter = Meter(self._began)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def take_over(self, finals: Sequence[Final], ended: Iterable[tuple[str, int, Document]]) -> None:
        """Results of earlier runs."""
        wanted = {(final.job.id, final.attempts) for final in finals if final.state is not State.SKIPPED}
        for job, attempt, document in ended:
            if (job, attempt) in wanted:
                self._results.write(document)
        for final in finals:
            if final.state is State.SKIPPED:
                self._results.write(of_skip(final))
        self._results.publish()

    def final(self, final: Final) -> None:
        document = of_skip(final) if final.outcome is None else final.outcome.document or {}
        self._results.write(document)
        self._meter.ended(time.monotonic())
        if final.state is not State.SUCCEEDED:
            self._on_failure(document)

    def tick(self) -> None:
        self._on_progress(self._meter.progress(self._plan, time.monotonic()))


class _Results:
    """The file of results: a draft until those of earlier runs are in it, then appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self._file: TextIO = self._draft.open("x", encoding="utf-8")
        self.statuses: Counter[str] = Counter()

    def write(self, document: Document) -> None:
        self.statuses[document["status"]] += 1
        self._file.write(json.dumps(document, separators=(",", ":")) + "\n")
        self._file.flush()

    def publish(self) -> None:
        os.replace(self._draft, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._draft.unlink(missing_ok=True)


def write_junit(path: Path, name: str, results: Path, summary: Summary) -> None:
    """From the results' file, job by job, so that outputs need not be in memory together."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with results.open(encoding="utf-8") as lines, draft.open("x", encoding="utf-8") as file:
            file.writelines(junit(name, map(json.loads, lines), summary.statuses, summary.seconds))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _reach(way: Way) -> None:
    """Whether there is a service that takes the token, by the record of an exec that nobody has."""
    name = f"none-{secrets.token_hex(6)}"
    try:
        way.find(Names(name, name))
    except SandloomError as error:
        error.exit_code = 2  # type: ignore[attr-defined]
        raise


def _restored(plan: Plan, history: History) -> list[Final]:
    try:
        return plan.restore(history.entries)
    except KeyError as error:
        raise BatchInvalid(f"the journal names the job {error}, which is not in the file") from None


def _leftovers(jobs: Sequence[Job], plan: Plan, history: History) -> Iterator[str]:
    """Sandboxes of attempts that ended without their release being known, and of keys that are through."""
    keys = {job.id: job.sandbox for job in jobs}
    for name, begun in history.sandboxes.items():
        key = keys[begun.job]
        if plan.key_is_done(key) if key is not None else not plan.is_running(begun.job, begun.attempt):
            yield name


def _missing_inputs(jobs: Sequence[Job], directory: Path) -> Iterator[Problem]:
    for job in jobs:
        for place, local in job.inputs.items():
            path = directory / local
            if not os.path.isfile(path) or not os.access(path, os.R_OK):
                yield Problem(job.line, f"inputs.{place}", f"{local} is not a file that can be read")
