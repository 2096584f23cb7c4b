"""A PostgreSQL database as it is after a while, written in bulk: many workers and many more routes.

Of a hundred routes 30 are live, 20 sleep on their workers and 5 in the object store, and 45 were released. None of them
is due for maintenance. Some commands wait and some run, as many whatever the number of routes.
"""

from __future__ import annotations

import json
from functools import partial

from sqlalchemy import Connection

from sandloom.clock import MICROSECONDS
from sandloom.db import Database
from sandloom.execs.admission import request_document
from sandloom.execs.records import ExecRequest
from tests.integration.domain.world import HASH, PROFILE

#: What route ``n`` is, by ``n % 100``: those below a number that are not below an earlier one.
LIVE, ASLEEP, STORED = 30, 50, 55
WAITING_EVERY_WORKER = 1
HISTORY_OF_ROUTE = 2
_REQUEST = json.dumps(request_document(ExecRequest("run", ("true",))))
_HOUR_US = 3600 * MICROSECONDS


def fill(db: Database, workers: int, routes: int) -> None:
    """Workers ``w0`` …, routes ``box-0`` … of the default tenant, each with commands ``run-0`` … that have ended."""
    for statement in (*_statements(workers, routes), "ANALYZE"):
        db.write(partial(Connection.exec_driver_sql, statement=statement.replace("%", "%%")))


def live_box(number: int) -> str:
    return f"box-{number // LIVE * 100 + number % LIVE}"


def asleep_box(number: int) -> str:
    return f"box-{number * 100 + LIVE}"


def released_box(number: int) -> str:
    return f"box-{number * 100 + 99}"


def _statements(workers: int, routes: int) -> tuple[str, ...]:
    now = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
    worker, kind = f"'w' || mod(n, {workers})", "mod(n, 100)"
    status = f"""CASE WHEN {kind} < {LIVE} THEN 'READY' WHEN {kind} < {STORED} THEN 'SUSPENDED' ELSE 'RELEASED' END"""
    held = f"CASE WHEN {kind} < {ASLEEP} THEN 1000 + n END"
    snapshot = f"CASE WHEN {kind} >= {ASLEEP} AND {kind} < {STORED} THEN 'snapshot-' || n END"
    ended = f"generate_series(0, {routes - 1}) n, generate_series(0, {HISTORY_OF_ROUTE - 1}) r"
    released = f"CASE WHEN {kind} >= {STORED} THEN {now} - n END"
    return (
        f"""INSERT INTO workers (worker_id, epoch, status, queue, data_endpoint, public_key, profile_id, declared_hash,
        effective_hash, isolation_rank, storage_mode, root_id, uid_start, uid_end, next_uid, capacity, exec_slots,
        reserved, renewals, lease_expires_us, registered_us, node, load)
        SELECT 'w' || n, 1, 'ACTIVE', 'q' || n, '', '', '{PROFILE}', '{HASH}', '{HASH}', 2, 'local', 'r' || n, 1000,
        9000000, 5000000, 100000, 128, 0, 0, {now} + {_HOUR_US}, 1, '{{}}', '{{}}'
        FROM generate_series(0, {workers - 1}) n""",
        f"""INSERT INTO sandboxes (tenant_id, sandbox_id, workspace_scope_id, profile_id, profile_hash, status,
        generation, worker_id, worker_epoch, root_id, storage_mode, sandbox_uid, held_uid, workspace, active_execs,
        snapshot, lifecycle_count, total_lifetime_ms, created_us, assigned_us, ready_us, last_active_us, status_us,
        look_us)
        SELECT 'default', 'box-' || n, 'scope', '{PROFILE}', '{HASH}', {status}, 1, {worker}, 1,
        'r' || mod(n, {workers}), 'local', 1000 + n, {held}, 'new', 0, {snapshot}, 1, 0, {now} - n, {now}, {now}, {now},
        {now}, {now} + {_HOUR_US} + n FROM generate_series(0, {routes - 1}) n""",
        f"""INSERT INTO sandbox_history (tenant_id, sandbox_id, generation, worker_id, started_us, created_by, ready_us,
        released_us) SELECT 'default', 'box-' || n, 1, {worker}, {now} - n, 'fill', {now}, {released}
        FROM generate_series(0, {routes - 1}) n""",
        f"""INSERT INTO execs (tenant_id, sandbox_id, exec_id, generation, worker_id, worker_epoch, status,
        request_hash, request, labels, timeout_seconds, exit_code, reason, truncated, usage, last_seq, rings, ring_us,
        queued_us, started_us, finished_us)
        SELECT 'default', 'box-' || n, 'run-' || r, 1, {worker}, 1, 'SUCCEEDED', 'h', '{_REQUEST}', '{{}}', 60, 0,
        'exit', false, '{{}}', 3, 0, 0, {now} - n - r, {now} - n, {now} - n FROM {ended}""",
        f"""INSERT INTO exec_events SELECT 'default', 'box-' || n, 'run-' || r, s, 'status', '', {now}
        FROM {ended}, generate_series(1, 3) s""",
        f"""INSERT INTO usage_records (tenant_id, sandbox_id, exec_id, workspace_scope_id, labels, cpu_ms, wall_ms,
        max_rss_bytes, io_bytes, finished_us)
        SELECT 'default', 'box-' || n, 'run-' || r, 'scope', '{{}}', 1, 1, 1, 1, {now} FROM {ended}""",
        f"""INSERT INTO usage_days (tenant_id, day, sandbox_id, workspace_scope_id, stored_bytes)
        SELECT 'default', {now} / 86400000000 - mod(n, 10), 'box-' || n, 'scope', 1
        FROM generate_series(0, {routes - 1}) n""",
        f"""INSERT INTO api_keys (key_id, tenant_id, name, hash, scopes, created_by, created_us, expires_us)
        SELECT 'default:' || n, 'default', '', '', '', '', n, {now} + {_HOUR_US}
        FROM generate_series(0, {routes - 1}) n""",
        f"""INSERT INTO operations SELECT 'default', 'op-' || n, {now} FROM generate_series(0, {routes - 1}) n""",
        f"""INSERT INTO execs (tenant_id, sandbox_id, exec_id, generation, worker_id, worker_epoch, status, exec_scope,
        active_scope, open_worker_id, request_hash, request, labels, timeout_seconds, truncated, last_seq, rings,
        ring_us, queued_us)
        SELECT tenant_id, sandbox_id, 'waits', 1, worker_id, 1, 'QUEUED', 'crowd', 'crowd', worker_id, 'h',
        '{_REQUEST}', '{{}}', 60, false, 1, 0, {now} + {_HOUR_US}, {now}
        FROM (SELECT *, row_number() OVER (PARTITION BY worker_id ORDER BY created_us) AS place FROM sandboxes
        WHERE status = 'READY') of_worker WHERE place <= {WAITING_EVERY_WORKER}""",
        """INSERT INTO exec_events SELECT tenant_id, sandbox_id, exec_id, 1, 'status', '', queued_us FROM execs
        WHERE status = 'QUEUED'""",
        """UPDATE sandboxes SET status = 'RUNNING', active_execs = 1 WHERE (tenant_id, sandbox_id) IN
        (SELECT tenant_id, sandbox_id FROM execs WHERE status = 'QUEUED')""",
        """UPDATE workers SET reserved = (SELECT count(*) FROM sandboxes s WHERE s.worker_id = workers.worker_id
        AND s.status IN ('READY', 'RUNNING'))""",
    )
