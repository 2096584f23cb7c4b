"""What one call may have done to a row, by the tables of moves."""

from __future__ import annotations

from typing import Any

from sandloom.execs.states import MOVES as EXEC_MOVES
from sandloom.execs.states import ExecStatus
from sandloom.sandboxes.states import MOVES, SandboxStatus


def check_sandbox_step(before: Any, after: Any) -> None:
    assert after.generation >= before.generation
    if (before.worker_id, before.worker_epoch) != (after.worker_id, after.worker_epoch):
        assert after.generation > before.generation, "another owner or epoch under the same generation"
    if before.status == "RELEASED" and after.status != "RELEASED":
        assert after.generation == before.generation + 1
    if after.generation == before.generation + 1 and before.status != "RELEASED":
        return  # an adoption moved it: back to ASSIGNED from any live state, or on in its release
    _check_move(MOVES, SandboxStatus, before.status, after.status)


def check_exec_step(before: Any, after: Any) -> None:
    assert after.last_seq >= before.last_seq
    assert after.generation >= before.generation
    _check_move(EXEC_MOVES, ExecStatus, before.status, after.status)


def _check_move(table: Any, status: Any, before: str, after: str) -> None:
    """One rule may take two steps along the table, as the release of an orphan does."""
    one = table[status(before)]
    two = {target for step in one for target in table[step]}
    assert before == after or status(after) in one | two, f"{before} → {after}"
