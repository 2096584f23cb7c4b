"""Every word of the engine has one of the service."""

from __future__ import annotations

import pytest

from sandloom.errors import REGISTRY, Category, FileMissing, FileTooLarge
from sandloom.execs.states import ExecStatus
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.spec import LaunchFault, Reason, Usage, Verdict
from workers.translate import Ending, file_error, outcome_of


@pytest.mark.parametrize("kind", FaultKind)
def test_every_file_fault_is_an_error_of_the_service(kind: FaultKind) -> None:
    error = file_error(FileFault(kind, "/workspace/a has a problem"))
    assert error.code in REGISTRY
    assert error.detail == "/workspace/a has a problem"
    assert error.code != "SANDBOX_INTERNAL_ERROR"


def test_numbers_of_a_file_fault_reach_the_client() -> None:
    error = file_error(FileFault(FaultKind.TOO_LARGE, "large", size_bytes=7))
    assert isinstance(error, FileTooLarge)
    assert error.to_problem()["size_bytes"] == 7
    assert isinstance(file_error(FileFault(FaultKind.NOT_FOUND, "x")), FileMissing)


@pytest.mark.parametrize("fault", LaunchFault)
def test_a_command_that_never_ran_names_a_known_error(fault: LaunchFault) -> None:
    outcome = outcome_of(Verdict(Reason.NOT_STARTED, error=fault, detail="/var/lib/host/path is closed"))
    assert outcome.error in REGISTRY
    assert outcome.status in (ExecStatus.FAILED, ExecStatus.WORKER_LOST)
    assert outcome.detail


@pytest.mark.parametrize("fault", [LaunchFault.ISOLATION_FAILED, LaunchFault.SPAWNER_LOST])
def test_host_paths_are_for_operators(fault: LaunchFault) -> None:
    outcome = outcome_of(Verdict(Reason.NOT_STARTED, error=fault, detail="/var/lib/host/path is closed"))
    assert "/var/lib" not in (outcome.detail or "")


def test_shell_codes_stand_for_programs_that_cannot_run() -> None:
    codes = {
        fault: outcome_of(Verdict(Reason.NOT_STARTED, error=fault)).exit_code
        for fault in (LaunchFault.PROGRAM_NOT_FOUND, LaunchFault.PROGRAM_NOT_EXECUTABLE)
    }
    assert codes == {LaunchFault.PROGRAM_NOT_FOUND: 127, LaunchFault.PROGRAM_NOT_EXECUTABLE: 126}


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NOT_STARTED])
def test_every_reason_has_a_terminal_status(reason: Reason) -> None:
    outcome = outcome_of(Verdict(reason, exit_code=1, usage=Usage(cpu_ms=5)))
    assert outcome.reason == reason.value
    assert outcome.status not in (ExecStatus.QUEUED, ExecStatus.RUNNING)
    assert outcome.usage["cpu_ms"] == 5


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (Ending.CANCELLED, ExecStatus.CANCELLED),
        (Ending.RELEASED, ExecStatus.CANCELLED),
        (Ending.STOPPED, ExecStatus.WORKER_LOST),
        (Ending.FENCED, ExecStatus.WORKER_LOST),
    ],
)
def test_why_the_node_ended_a_command_decides_its_status(ending: Ending, status: ExecStatus) -> None:
    outcome = outcome_of(Verdict(Reason.CANCELLED, exit_code=143, signal=15), ending)
    assert outcome.status is status
    assert outcome.detail
    lost = status is ExecStatus.WORKER_LOST
    assert (outcome.error == "SANDBOX_WORKER_LOST") is lost
    assert REGISTRY["SANDBOX_WORKER_LOST"].category is Category.WAIT


def test_a_command_that_was_done_before_it_was_ended_keeps_its_own_end() -> None:
    outcome = outcome_of(Verdict(Reason.EXIT, exit_code=0), Ending.CANCELLED)
    assert (outcome.status, outcome.exit_code) == (ExecStatus.SUCCEEDED, 0)
