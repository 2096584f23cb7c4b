"""``Moves`` in statements that every database understands; the caller's transaction holds them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from sandloom.execs import repository, statements
from sandloom.execs.admission import Admission, refusal_to_admit
from sandloom.execs.records import Outcome
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey


def admit(connection: Connection, admission: Admission) -> tuple[Any | None, bool]:
    key, request, policy = admission.key, admission.request, admission.policy
    row = repository.admission(connection, admission)
    if row is None or row.known or refusal_to_admit(row, admission.generation, request.exec_scope, policy) is not None:
        return row, False
    where = {**statements.of_key(key), "of_epoch": row.worker_epoch, "now": row.now, **admission.place_values()}
    if statements.TAKE_PLACE.run(connection, where) != 1:
        return row, False
    values = {
        **{name: getattr(row, name) for name in statements.OF_SANDBOX},
        **admission.request_values(),
        "open_worker_id": row.worker_id,
        "ring_us": row.now + admission.ring_after_us,
        "queued_us": row.now,
    }
    statements.INSERT_QUEUED.run(connection, values)
    queued = [("status", repository.status_data(ExecStatus.QUEUED))]
    repository.insert_events(connection, key, 1, queued, row.now)
    return row, True


def claim(connection: Connection, key: ExecKey, values: Mapping[str, Any]) -> Any | None:
    if statements.CLAIM.run(connection, values) != 1:
        return None
    row = repository.fetch(connection, key)
    assert row is not None
    running = [("status", repository.status_data(ExecStatus.RUNNING))]
    repository.insert_events(connection, key, row.last_seq, running, row.started_us)
    return row


def append(
    connection: Connection, key: ExecKey, owned: Mapping[str, Any], last_seq: int, events: Sequence[tuple[str, bytes]]
) -> bool:
    values = {**owned, "of_last_seq": last_seq, "new_last_seq": last_seq + len(events)}
    ours = statements.ADVANCE.run(connection, values) == 1
    if ours:
        repository.insert_events(connection, key, last_seq + 1, events)
    return ours


def finish(
    connection: Connection,
    key: ExecKey,
    owned: Mapping[str, Any],
    last_seq: int,
    events: Sequence[tuple[str, bytes]],
    outcome: Outcome,
) -> None:
    repository.end_own(connection, key, owned, last_seq, events, outcome)
