"""What an attempt does where the service has no place, no answer, or lost files. The service is a double: a real one
cannot be made to lose things at a given moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandloom.batch.attempts import Attempts, Places
from sandloom.batch.jobs import Job
from sandloom.batch.journal import Journal
from sandloom.batch.plan import Attempt
from sandloom.batch.ways import Names
from sandloom.contracts.rest import RouteAnswer
from sandloom.errors import ExecIdConflict, NoWorkerAvailable, StaleRoute, Unauthorized, Unavailable, WorkerLost
from sandloom.sdk import Result

ROUTE = RouteAnswer(
    sandbox_id="b", workspace_scope_id="s", worker_id="w", worker_epoch=1, worker_endpoint="q", expires_at=None,
    generation=1, sandbox_uid=1, status="READY", storage_mode="local", profile_id="p", profile_hash="h",
    workspace="new",
)  # fmt: skip
RECORD = Result(
    sandbox_id="b", exec_id="e", generation=1, status="SUCCEEDED", argv=["x"], exec_scope=None, exit_code=0,
    signal=None, reason="exit", detail=None, error=None, truncated=False, duration_ms=1, queued_ms=0, usage=None,
    labels={}, last_seq=2, created_at="", started_at="t", finished_at="t",
)  # fmt: skip


class Service:
    """A Way and a Box at once. ``says``: what each call by name answers, one after the other; the last one stays."""

    scope = "s"

    def __init__(self, **says: list[Any]) -> None:
        self.says: dict[str, list[Any]] = {"find": [None], "open": [ROUTE], "run": [RECORD], "wait": [RECORD], **says}
        self.calls: list[str] = []
        self.route = ROUTE

    def _say(self, name: str) -> Any:
        self.calls.append(name)
        answers = self.says[name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def open(self, sandbox_id: str) -> Service:
        self.route = self._say("open")
        return self

    def find(self, names: Names) -> Result | None:
        return self._say("find")

    def wait(self, names: Names) -> Result:
        return self._say("wait")

    def run(self, command: Mapping[str, Any]) -> Result:
        return self._say("run")

    def attach(self, templates: Sequence[str]) -> None: ...

    def put(self, path: str, content: bytes, mode: int) -> None:
        self.calls.append(f"put {path} {content!r} {mode:o}")

    def fetch(self, path: str, local: Path) -> None: ...

    def release(self, sandbox_id: str) -> None:
        self.calls.append("release")

    def close(self) -> None: ...


Make = Callable[..., Attempts]


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr("sandloom.batch.attempts.time.sleep", lambda seconds: None)
    journal = Journal.open(tmp_path / "journal", jobs_digest="d", new_batch="b1", resume=False)

    def make(service: Service, patience_seconds: float = 60, **more: Any) -> Attempts:
        return Attempts(service, journal, Places(tmp_path, tmp_path), patience_seconds=patience_seconds, **more)

    yield make
    journal.close()


OWN = Job("a", 1, {"argv": ["x"]})
SHARED = Job("a", 1, {"argv": ["x"]}, sandbox="k")


def test_what_fails_on_the_way_is_looked_at_before_it_is_done_again(attempts: Make) -> None:
    service = Service(run=[WorkerLost(), StaleRoute(), RECORD.model_copy(update={"status": "RUNNING"})])
    outcome = attempts(service).carry_out(Attempt(OWN, 1))
    assert outcome.ok
    assert service.calls == ["open", "run", "find", "open", "run", "find", "open", "run", "wait", "release"]


def test_what_was_begun_before_is_found_and_nothing_is_put_again(attempts: Make, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("in")
    job = Job("a", 1, {"argv": ["x"]}, inputs={"/workspace/x": "x"})
    service = Service(find=[RECORD])
    assert attempts(service).carry_out(Attempt(job, 1, uncertain=True)).ok
    assert service.calls == ["find", "release"]
    service = Service()
    assert attempts(service).carry_out(Attempt(job, 1, uncertain=True)).ok
    assert service.calls == ["find", "open", "put /workspace/x b'in' 600", "run", "release"]


@pytest.mark.parametrize(("error", "patience"), [(Unavailable(), 0), (Unauthorized(), 60)])
def test_a_service_that_cannot_be_used_leaves_the_attempt_as_it_is(
    attempts: Make, tmp_path: Path, error: Exception, patience: float
) -> None:
    service = Service(open=[error])
    with pytest.raises(type(error)):
        attempts(service, patience).carry_out(Attempt(OWN, 1))
    assert '"begun"' in (tmp_path / "journal").read_text()
    assert '"ended"' not in (tmp_path / "journal").read_text()


@pytest.mark.parametrize(("error", "patience"), [(NoWorkerAvailable(), 0), (ExecIdConflict(), 60)])
def test_a_job_that_the_service_refuses_has_its_code(attempts: Make, error: Any, patience: float) -> None:
    outcome = attempts(Service(open=[error]), patience).carry_out(Attempt(OWN, 1))
    assert (outcome.status, outcome.reason, outcome.error) == ("ERROR", "refused", error.code)


@pytest.mark.parametrize(
    ("known", "generation", "workspace", "status"),
    [
        (None, 1, "new", "SUCCEEDED"), (1, 1, "new", "SUCCEEDED"), (1, 2, "kept", "SUCCEEDED"),
        (1, 2, "restored", "SUCCEEDED"), (1, 2, "lost", "ERROR"), (1, 2, "new", "ERROR"),
    ],
)  # fmt: skip
def test_no_job_is_given_a_shared_sandbox_without_its_files(
    attempts: Make, known: int | None, generation: int, workspace: str, status: str
) -> None:
    route = ROUTE.model_copy(update={"generation": generation, "workspace": workspace})
    service = Service(open=[route])
    generations = {} if known is None else {"b1:k": known}
    outcome = attempts(service, generations=generations).carry_out(Attempt(SHARED, 1))
    assert outcome.status == status
    assert ("run" in service.calls) == (status == "SUCCEEDED")
    assert "release" not in service.calls
