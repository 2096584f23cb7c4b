"""How PostgreSQL finds the rows of every call when there are many: by an index, and never all of a table that grows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event

from sandloom.db import Database, open_database
from sandloom.db.tallies import Tally
from sandloom.execs import repository
from sandloom.execs.admission import Admission, ExecPolicy
from sandloom.execs.service import Execs
from sandloom.fleet.service import Fleet
from sandloom.ids import ExecKey
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.reclaim.prune import Prune
from sandloom.reclaim.queues import UnusedQueues
from sandloom.reclaim.service import Reclaim
from sandloom.reclaim.suspended import Suspended
from sandloom.sandboxes.forks import Forks
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.service import Sandboxes
from sandloom.sandboxes.suspension import Suspensions
from sandloom.tenants.keys import Keys
from sandloom.tenants.records import KeyScope, Quotas, UsageQuestion
from sandloom.tenants.service import Tenants
from sandloom.tenants.usage import Usage
from tests.integration.domain import crowd
from tests.integration.domain.world import DONE, HASH, MINT, PROFILE, REFUSED, TENANT, World, key, node, request
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.server

WORKERS, ROUTES = 100, 4_000
SERVICES = (
    Sandboxes, Suspensions, Forks, LooseSnapshots, Execs, Fleet, Reclaim, Suspended, UnusedQueues, Prune, Keys, Tenants,
    Usage,
)  # fmt: skip
#: They have one row for each worker, each name in the code, each tenant that an operator knows by name, each snapshot
#: that is being made.
SMALL = ("workers", "tallies", "tenants", "loose_snapshots")
#: Indexes that hold only what is open or under way, so that all of it may be read.
SMALL_INDEXES = ("ix_execs_open", "pk_workers", "pk_tallies", "pk_tenants")

Call = Callable[[World], Any]


@pytest.fixture(scope="module")
def full(postgres: PostgresServer) -> Iterator[World]:
    url = postgres.new_database()
    postgres.execute(f'ALTER DATABASE "{url.rsplit("/", 1)[1]}" SET synchronous_commit = off')
    database = open_database(url)
    crowd.fill(database, WORKERS, ROUTES)
    yield World(database)
    database.dispose()
    postgres.drop_database(url)


def live(world: World, number: int = 100) -> Route:
    return world.sandboxes.get(key(crowd.live_box(number)))


def asleep(world: World) -> Route:
    return world.sandboxes.get(key(crowd.asleep_box(3)))


def announced(world: World, route: Route) -> Route:
    world.loose.announce(route.key, "snap")
    return route


def run(world: World, exec_id: str = "new") -> Any:
    """A command in a live sandbox; the first call admits it."""
    return world.queued(live(world), exec_id, exec_id)


def wake(world: World) -> Any:
    return world.suspensions.begin_resume(asleep(world).key, "tester")


def bounded(world: World) -> Any:
    """A tenant that has every bound, and one of everything that is bounded."""
    world.tenants.set("other", Quotas(9, 9, 9, 9, 9, 9))
    route = world.ready("bounded", "other")
    return world.queued(route)


def used(world: World) -> Any:
    asked = UsageQuestion("other", 0, 1 << 20, ("sandbox", "day"), "team")
    return world.usage.report(asked, 50, 0), world.usage.report(replace(asked, sandbox_id="bounded"), 50, 0)


#: Every public method of the services, in an order in which each finds something to do.
CALLS: dict[str, Call] = {
    "Sandboxes.resolve": lambda w: (w.resolve(crowd.live_box(1)), w.resolve("new"), w.resolve(crowd.released_box(1))),
    "Sandboxes.mark_ready": lambda w: w.ready("newer"),
    "Sandboxes.get": live,
    "Sandboxes.current": lambda w: w.sandboxes.current(key(crowd.live_box(1)), 1),
    "Sandboxes.list": lambda w: [
        w.sandboxes.list(TENANT, status, None, None, 50, 0) for status in (None, "SUSPENDED")
    ],
    "Sandboxes.audit": lambda w: w.sandboxes.audit(key(crowd.live_box(1))),
    "Sandboxes.touch": lambda w: w.sandboxes.touch(live(w).fence, "op"),
    "Sandboxes.hold": lambda w: w.sandboxes.hold(live(w, 101).fence),
    "Sandboxes.let_go": lambda w: w.sandboxes.let_go(live(w, 101).fence),
    "Sandboxes.begin_release": lambda w: w.sandboxes.begin_release(key("newer"), 1, "tester", "released"),
    "Sandboxes.releasing": lambda w: list(w.sandboxes.releasing(w.sandboxes.get(key("newer")).worker_id, 1)),
    "Sandboxes.finish_release": lambda w: w.sandboxes.finish_release(w.sandboxes.get(key("newer")).fence),
    "Suspensions.begin": lambda w: w.suspensions.begin(live(w, 102).fence),
    "Suspensions.abort": lambda w: w.suspensions.abort(live(w, 102).fence),
    "Suspensions.announce": lambda w: w.suspensions.announce(live(w, 102).fence, "token"),
    "Suspensions.finish": lambda w: w.suspensions.begin(live(w, 103).fence)
    and w.suspensions.finish(live(w, 103).fence, "snap"),
    "Suspensions.copies": lambda w: w.suspensions.copies("w1"),
    "Suspensions.drop_copy": lambda w: w.suspensions.drop_copy(live(w, 103).fence, "snap"),
    "Suspensions.begin_resume": lambda w: (wake(w), w.suspensions.begin_resume(live(w, 103).key, "tester")),
    "Suspensions.fall_back": lambda w: w.suspensions.fall_back(asleep(w).fence),
    "Suspensions.keep": lambda w: w.suspensions.keep(announced(w, asleep(w)).fence, "snap"),
    "Suspensions.staying": lambda w: w.suspensions.staying("w1"),
    "Suspensions.takers": lambda w: w.suspensions.takers(PROFILE),
    "Forks.demand_free": lambda w: w.forks.demand_free(key("copy"), "scope"),
    "Forks.begin": lambda w: w.forks.begin(live(w, 104), key("copy"), "scope", "tester"),
    "LooseSnapshots.announce": lambda w: w.loose.announce(key("sleeping-copy"), "snap"),
    "Forks.keep": lambda w: w.forks.keep(live(w, 104), key("sleeping-copy"), "scope", "snap", "tester"),
    "LooseSnapshots.doom": lambda w: w.loose.doom(key("sleeping-copy"), "snap"),
    "LooseSnapshots.due": lambda w: w.loose.due(),
    "LooseSnapshots.forget": lambda w: w.loose.forget(key("sleeping-copy"), "snap"),
    "Execs.admit": run,
    "Execs.claim": lambda w: w.claim(run(w)),
    "Execs.append": lambda w: w.execs.append(run(w).key, run(w).worker_id, 1, 2, [("stdout", b"x")]),
    "Execs.get": lambda w: w.execs.get(run(w).key, output=True),
    "Execs.events": lambda w: (w.execs.events(run(w).key, 0), w.execs.events(run(w).key, 0, max_bytes=1)),
    "Execs.heads": lambda w: w.execs.heads([run(w).key, run(w, "cancelled").key]),
    "Execs.finish": lambda w: w.execs.finish(run(w).key, run(w).worker_id, 1, 3, [], DONE),
    "Execs.list": lambda w: w.execs.list(live(w).key, 50, 0),
    "Execs.cancel": lambda w: w.execs.cancel(run(w, "cancelled").key),
    "Execs.refuse": lambda w: w.execs.refuse(run(w, "refused").key, run(w).worker_id, 1, REFUSED),
    "Execs.open_counts": lambda w: w.execs.open_counts(),
    "Execs.open_for": lambda w: w.execs.open_for("w1", 1),
    "Execs.ended_tasks": lambda w: w.execs.ended_tasks("w1"),
    "Execs.queued_of": lambda w: w.execs.queued_of(live(w).key, live(w).worker_id),
    "Fleet.renew": lambda w: w.fleet.renew("w1", 1, 600, {}),
    "Fleet.drain": lambda w: w.fleet.drain("w2"),
    "Fleet.is_draining": lambda w: w.fleet.is_draining("w2"),
    "Fleet.undrain": lambda w: w.fleet.undrain("w2"),
    "Fleet.get": lambda w: w.fleet.get("w1"),
    "Fleet.list_workers": lambda w: w.fleet.list_workers(),
    "Fleet.leases": lambda w: w.fleet.leases(),
    "Fleet.unregister": lambda w: w.fleet.unregister("w2", 1),
    "Reclaim.begin_idle_releases": lambda w: w.reclaim.begin_idle_releases(),
    "Reclaim.stalled_releases": lambda w: w.reclaim.stalled_releases(),
    "Reclaim.recount_slots": lambda w: w.reclaim.recount_slots() or [],
    "Reclaim.end_queue_timeouts": lambda w: w.reclaim.end_queue_timeouts(),
    "Reclaim.due_rings": lambda w: w.reclaim.due_rings(),
    "Reclaim.look_later": lambda w: w.reclaim.look_later(),
    "Reclaim.count": lambda w: w.reclaim.count({Tally.ROWS_PRUNED: 1}),
    "Suspended.due": lambda w: Suspended(w.db, ReclaimPolicy(idle_action="suspend")).due(),
    "Suspended.cut_short": lambda w: w.dormant.cut_short(),
    "Suspended.begin_releases": lambda w: w.dormant.begin_releases(),
    "Suspended.unneeded_snapshots": lambda w: w.dormant.unneeded_snapshots(),
    "Suspended.forget_snapshot": lambda w: w.dormant.forget_snapshot(live(w, 103)),
    "Reclaim.declare_lost": lambda w: w.reclaim.declare_lost(w.lease("w2")),
    "Reclaim.end_lost_execs": lambda w: w.reclaim.end_lost_execs(),
    "Reclaim.release_orphans": lambda w: w.reclaim.release_orphans(),
    "UnusedQueues.after": lambda w: UnusedQueues(w.db, ReclaimPolicy()).after(""),
    "Prune.execs": lambda w: w.pruning.execs(),
    "Prune.history": lambda w: w.pruning.history(),
    "Prune.operations": lambda w: w.pruning.operations(),
    "Prune.uids": lambda w: w.pruning.uids(),
    "Prune.sandboxes": lambda w: w.pruning.sandboxes(),
    "Prune.workers": lambda w: w.pruning.workers(),
    "Prune.usage": lambda w: w.pruning.usage(),
    "Prune.keys": lambda w: w.pruning.keys(),
    "Keys.create": lambda w: w.keys.create("other", "key", [KeyScope.TASKS], "tester"),
    "Keys.list": lambda w: w.keys.list("other", 50, 0),
    "Keys.of_text": lambda w: w.keys.of_text(str(MINT.new("other"))),
    "Keys.demand_sender": lambda w: w.keys.demand_sender(w.keys.list("other", 1, 0)[0][0].key_id),
    "Keys.works": lambda w: w.keys.works(w.keys.list("other", 1, 0)[0][0].key_id),
    "Keys.revoke": lambda w: w.keys.revoke("other", w.keys.list("other", 1, 0)[0][0].key_id),
    "Tenants.set": bounded,
    "Tenants.get": lambda w: w.tenants.get("other"),
    "Tenants.asks": lambda w: w.tenants.asks("other"),
    "Tenants.demand_room": lambda w: w.tenants.demand_room("other"),
    "Usage.note_stored": lambda w: w.usage.note_stored(key("bounded", "other"), 1),
    "Usage.of_today": lambda w: w.usage.of_today("other"),
    "Usage.report": used,
    "restart": lambda w: w.register(
        "w3", takeover=True, root_id="r3", declared_hash=HASH, effective_hash=HASH, profile_id=PROFILE, uid_start=1000,
        uid_end=node().uid_end,
    ),
}  # fmt: skip
#: What reads all of something that grows, and why that is wanted.
READS_ALL: dict[str, str] = {
    "Sandboxes.list": "counts the tenant's sandboxes for the total of a page",
}


def test_every_method_of_the_services_is_here():
    methods = {
        f"{service.__name__}.{name}"
        for service in SERVICES
        for name, value in vars(service).items()
        if callable(value) and not name.startswith("_")
    }
    assert methods - set(CALLS) == set()
    assert set(CALLS) - methods == {"restart"}
    assert set(READS_ALL) <= set(CALLS)


def test_no_call_reads_all_of_what_grows(full: World):
    bad: list[str] = []
    seen: dict[str, str] = {}
    for name, call in CALLS.items():
        for statement, parameters in sent(full.db, partial(call, full)):
            if statement in seen:
                continue
            plan = explain(full.db, statement, parameters)
            seen[statement] = plan
            if name not in READS_ALL:
                bad += [f"{name}: {scan}\n{statement}\n{plan}" for scan in whole_scans(plan)]
    assert len(seen) > 80
    assert not bad, "\n\n".join(bad)


def test_the_newest_sandboxes_of_a_tenant_are_found_by_an_index(full: World):
    """The page itself, as far as it goes, while its total is counted."""
    found = sent(full.db, lambda: full.sandboxes.list(TENANT, None, None, None, 50, 0))
    plan = explain(full.db, *found[-1])
    assert "ix_sandboxes_recent" in plan
    assert not whole_scans(plan)


@pytest.mark.parametrize(("policy", "counted"), [(ExecPolicy(), False), (ExecPolicy(max_queued_execs=20), True)])
def test_admission_counts_a_queue_only_where_it_can_be_full(full: World, policy: ExecPolicy, counted: bool):
    asked = Admission(ExecKey(*live(full).key, "asks"), 1, request("asks"), 60, None, 0, policy)
    found = sent(full.db, lambda: full.db.read(lambda connection: repository.admission(connection, asked)))
    plan = explain(full.db, *found[-1], options="ANALYZE")
    (count,) = re.findall(r"Aggregate .*", plan)
    assert ("never executed" not in count) == counted, plan


def whole_scans(plan: str) -> list[str]:
    """Nodes that read all of a table or index which is not small, and not only to make what another found less."""
    nodes = re.split(r"\n\s*->\s+|\n(?=\s*CTE )", plan)
    found = []
    for text in nodes:
        if match := re.search(r"Seq Scan on (\w+)", text):
            found += [match[0]] if match[1] not in SMALL else []
        elif match := re.search(r"Index (?:Only )?Scan (?:Backward )?using (\w+)|Bitmap Index Scan on (\w+)", text):
            whole = "Index Cond" not in text and (match[1] or match[2]) not in SMALL_INDEXES
            whole = whole and not (match[2] and "BitmapAnd" in plan)
            found += [match[0]] if whole else []
    return found


def test_the_check_finds_whole_scans():
    assert whole_scans("Limit\n  ->  Seq Scan on execs  (cost=1)\n        Filter: x") == ["Seq Scan on execs"]
    assert whole_scans("Sort\n  ->  Index Scan using pk_execs on execs\n        Filter: x")
    assert not whole_scans("Sort\n  ->  Index Scan using pk_execs on execs\n        Index Cond: (a = 1)\n  Filter: x")
    assert not whole_scans("Seq Scan on workers  (cost=1)")


def sent(db: Database, call: Callable[[], Any]) -> list[tuple[str, Any]]:
    """Every statement of the call that reads or changes rows, with its parameters."""
    found: list[tuple[str, Any]] = []

    def note(conn: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH"):
            found.append((statement, parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        call()
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    return found


def explain(db: Database, statement: str, parameters: Any, *, options: str = "COSTS") -> str:
    def look(connection: Connection) -> str:
        connection.exec_driver_sql("SET enable_seqscan = on")  # what the planner would choose by itself
        return "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN ({options}) {statement}", parameters))

    return db.read(look)
