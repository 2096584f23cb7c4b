"""``Moves`` as one PostgreSQL statement each: a transaction in one round trip.

READ COMMITTED: every part of a statement sees the rows of its beginning. An UPDATE that waited for a row judges the
newest version of that row by its own conditions, and nothing else anew. So whatever decides a move stands in the
conditions on the very row that it changes; the rest, as in ``execs.portable``, is a look beforehand. Rows are locked in
the order of ``db.tables``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BindParameter,
    Connection,
    FromClause,
    Select,
    Text,
    and_,
    bindparam,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    true,
)

from sandloom.db.clock import now_us
from sandloom.db.prepared import Query
from sandloom.db.tables import exec_events, execs, sandboxes, usage_records
from sandloom.execs import repository, statements
from sandloom.execs.admission import Admission
from sandloom.execs.records import Outcome
from sandloom.execs.repository import LostRace
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from sandloom.sandboxes.diagnose import LIVING

_e, _s, _v, _u = execs.c, sandboxes.c, exec_events.c, usage_records.c


def _given(name: str, column: Any) -> BindParameter[Any]:
    return bindparam(name, type_=column.type)


def _status_event(exec_row: FromClause, exec_id: Any, seq: Any, at_us: Any) -> CTE:
    values = {
        "tenant_id": exec_row.c.tenant_id,
        "sandbox_id": exec_row.c.sandbox_id,
        "exec_id": exec_id,
        "seq": seq,
        "kind": literal("status"),
        "data": _given("status_data", _v.data),
        "at_us": at_us,
    }
    return insert(exec_events).from_select(list(values), select(*values.values())).cte("traced")


def _given_events(exec_row: FromClause) -> CTE:
    """``kinds`` and ``data`` are arrays of one length; the first event comes after ``of_last_seq``."""
    given = (
        func.unnest(bindparam("kinds", type_=ARRAY(Text())), bindparam("data", type_=ARRAY(_v.data.type)))
        .table_valued("kind", "data", with_ordinality="number", name="given")
        .render_derived()
    )
    values = {
        "tenant_id": exec_row.c.tenant_id,
        "sandbox_id": exec_row.c.sandbox_id,
        "exec_id": exec_row.c.exec_id,
        "seq": _given("of_last_seq", _v.seq) + given.c.number,
        "kind": given.c.kind,
        "data": given.c.data,
        "at_us": now_us(),
    }
    rows = select(*values.values()).select_from(exec_row.join(given, true()))
    return insert(exec_events).from_select(list(values), rows).cte("traced")


def _admit() -> Select[Any]:
    facts = statements.admission().cte("facts")
    place = (
        statements.PLACE.where(
            _s.tenant_id == facts.c.tenant_id,
            _s.sandbox_id == facts.c.sandbox_id,
            _s.worker_epoch == facts.c.worker_epoch,
            facts.c.owner_epoch == facts.c.worker_epoch,
            or_(*(facts.c.owner_status == status for status in LIVING)),
            facts.c.owner_lease_us > facts.c.now,
            not_(facts.c.known),
            not_(facts.c.scope_taken),
            facts.c.queued < statements.QUEUED_BELOW,
        )
        .values(last_active_us=facts.c.now)
        .returning(*(_s[name] for name in statements.OF_SANDBOX), _s.last_active_us.label("now"))
        .cte("place")
    )
    values = {
        **{name: place.c[name] for name in statements.OF_SANDBOX},
        **{name: _given(name, _e[name]) for name in statements.OF_REQUEST},
        **{name: literal(value, _e[name].type) for name, value in statements.QUEUED.items()},
        "open_worker_id": place.c.worker_id,
        "ring_us": place.c.now + bindparam("ring_after_us"),
        "queued_us": place.c.now,
    }
    queued = insert(execs).from_select(list(values), select(*values.values())).cte("queued")
    traced = _status_event(place, _given("exec_id", _e.exec_id), literal(1), place.c.now)
    taken = select(place.c.tenant_id).exists().label("taken")
    return select(*facts.c, taken).add_cte(queued, traced)


def _claim() -> Select[Any]:
    claimed = statements.CLAIMED.returning(*execs.columns).cte("claimed")
    traced = _status_event(claimed, claimed.c.exec_id, claimed.c.last_seq, claimed.c.started_us)
    return select(*claimed.c).add_cte(traced)


def _append() -> Select[Any]:
    advanced = statements.ADVANCED.returning(_e.tenant_id, _e.sandbox_id, _e.exec_id).cte("advanced")
    return select(advanced.c.exec_id).add_cte(_given_events(advanced))


def _finish() -> Select[Any]:
    """The sandbox is locked before the exec is changed, and changed only if the exec was."""
    sandbox = (
        select(_s.tenant_id, _s.sandbox_id, _s.workspace_scope_id)
        .where(statements.IS_SANDBOX)
        .with_for_update(key_share=True)
        .cte("sandbox")
    )
    ended = (
        statements.ENDED_OWN.where(_e.tenant_id == sandbox.c.tenant_id, _e.sandbox_id == sandbox.c.sandbox_id)
        .returning(
            *(_e[name] for name in ("tenant_id", "sandbox_id", "exec_id", "generation", "labels", "finished_us")),
            sandbox.c.workspace_scope_id,
        )
        .cte("ended")
    )
    same = and_(_s.tenant_id == ended.c.tenant_id, _s.sandbox_id == ended.c.sandbox_id)
    left = statements.left(and_(same, _s.generation == ended.c.generation)).cte("left_sandbox")
    columns = ("tenant_id", "sandbox_id", "exec_id", "workspace_scope_id", "labels", "finished_us")
    values = {
        **{name: ended.c[name] for name in columns},
        **{name: _given(name, _u[name]) for name in statements.USED},
    }
    used = insert(usage_records).from_select(list(values), select(*values.values())).cte("used")
    return select(ended.c.exec_id).add_cte(left, _given_events(ended), used)


ADMIT = Query(_admit(), "admit")
CLAIM = Query(_claim(), "claim")
APPEND = Query(_append(), "append")
FINISH = Query(_finish(), "finish")


def admit(connection: Connection, admission: Admission) -> tuple[Any | None, bool]:
    values = {
        **statements.of_key(admission.key),
        **admission.weighed_values(),
        **admission.place_values(),
        **admission.request_values(),
        "ring_after_us": admission.ring_after_us,
        "status_data": repository.status_data(ExecStatus.QUEUED),
    }
    row = ADMIT.one_or_none(connection, values)
    return row, row is not None and row.taken


def claim(connection: Connection, key: ExecKey, values: Mapping[str, Any]) -> Any | None:
    return CLAIM.one_or_none(connection, {**values, "status_data": repository.status_data(ExecStatus.RUNNING)})


def append(
    connection: Connection, key: ExecKey, owned: Mapping[str, Any], last_seq: int, events: Sequence[tuple[str, bytes]]
) -> bool:
    values = {**owned, **_arrays(last_seq, events), "new_last_seq": last_seq + len(events)}
    return APPEND.one_or_none(connection, values) is not None


def finish(
    connection: Connection,
    key: ExecKey,
    owned: Mapping[str, Any],
    last_seq: int,
    events: Sequence[tuple[str, bytes]],
    outcome: Outcome,
) -> None:
    trace = [*events, ("status", repository.end_data(outcome))]
    values = {
        **owned,
        **repository.end_values(outcome, last_seq, trace),
        **repository.used_values(outcome),
        **_arrays(last_seq, trace),
    }
    if FINISH.one_or_none(connection, values) is None:
        raise LostRace


def _arrays(last_seq: int, events: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    return {"of_last_seq": last_seq, "kinds": [kind for kind, _ in events], "data": [data for _, data in events]}
