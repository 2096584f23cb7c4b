"""The writes that may meet, and the states in which they do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sandloom.db import Database, tallies
from sandloom.db.tables import execs, loose_snapshots, sandbox_history, sandboxes, usage_records, workers
from sandloom.db.tallies import Tally
from sandloom.ids import ExecKey
from sandloom.reclaim.fence import fence
from sandloom.sandboxes.records import Fence
from sandloom.sandboxes.repository import recount
from sandloom.tenants.records import KeyScope, Quotas
from tests.integration.domain.world import REFUSED, TENANT, World, key, request

COPY = key("copy")
QUEUED, RUNNING = ExecKey("default", "box", "queued"), ExecKey("default", "box", "running")
Write = Callable[[World], Any]
State = Callable[[World], None]

#: Each acts as generation 1 of worker w1, epoch 1, unless it looks for itself.
WRITES: dict[str, Write] = {
    "resolve": lambda w: w.resolve(),
    "resolve other": lambda w: w.resolve("other"),
    "admit": lambda w: w.execs.admit(key(), 1, request("new", "c")),
    "admit same": lambda w: w.execs.admit(key(), 1, request("queued", "a")),
    "admit whole": lambda w: w.execs.admit(key(), 1, request("whole")),
    "claim": lambda w: w.execs.claim(QUEUED, 1, "w1", 1),
    "append": lambda w: w.execs.append(RUNNING, "w1", 1, 2, [("stdout", b"x")]),
    "finish": lambda w: w.finish(w.execs.get(RUNNING)),
    "cancel queued": lambda w: w.execs.cancel(QUEUED),
    "cancel running": lambda w: w.execs.cancel(RUNNING),
    "refuse": lambda w: w.execs.refuse(QUEUED, "w1", 1, REFUSED),
    "ready": lambda w: w.sandboxes.mark_ready(w.fence1),
    "ready but empty": lambda w: w.sandboxes.mark_ready(w.fence1, "lost"),
    "touch": lambda w: w.sandboxes.touch(w.fence1, "op"),
    "hold": lambda w: w.sandboxes.hold(w.fence1),
    "let go": lambda w: w.sandboxes.let_go(w.fence1),
    "release": lambda w: w.sandboxes.begin_release(key(), None, "tester", "released"),
    "finish release": lambda w: w.sandboxes.finish_release(w.fence1),
    "suspend": lambda w: w.suspensions.begin(w.fence1),
    "suspend idle": lambda w: w.suspensions.begin(w.fence1, w.now_us()),
    "abort suspend": lambda w: w.suspensions.abort(w.fence1),
    "announce snapshot": lambda w: w.suspensions.announce(w.fence1, "snap"),
    "finish suspend": lambda w: w.suspensions.finish(w.fence1),
    "resume": lambda w: w.suspensions.begin_resume(key(), "tester"),
    "fall back": lambda w: w.suspensions.fall_back(w.fence1),
    "drop copy": lambda w: w.suspensions.drop_copy(w.fence1, "snap"),
    "keep snapshot": lambda w: w.suspensions.keep(w.fence1, "snap"),
    "drain": lambda w: w.fleet.drain("w1"),
    "undrain": lambda w: w.fleet.undrain("w1"),
    "forget snapshot": lambda w: [w.dormant.forget_snapshot(found) for found in w.dormant.unneeded_snapshots()],
    "sleep ends": lambda w: w.dormant.begin_releases(),
    "fork": lambda w: w.forks.begin(w.sandboxes.get(key()), COPY, "scope", "tester"),
    "fork asleep": lambda w: w.forks.keep(w.sandboxes.get(key()), COPY, "scope", "snap", "tester"),
    "give up copy": lambda w: w.loose.doom(COPY, "snap"),
    "remove loose": lambda w: remove_loose(w),
    "resolve copy": lambda w: w.resolve("copy"),
    "resume copy": lambda w: w.suspensions.begin_resume(COPY, "tester"),
    "release copy": lambda w: w.sandboxes.begin_release(COPY, None, "tester", "released"),
    "copy is ready": lambda w: w.sandboxes.mark_ready(Fence(COPY, 1, "w1", 1)),
    "restart": lambda w: w.restart(),
    "restart empty": lambda w: w.restart(present=frozenset()),
    "renew": lambda w: w.fleet.renew("w1", 1, 600, {}),
    "end lost": lambda w: w.reclaim.end_lost_execs(),
    "orphans": lambda w: w.reclaim.release_orphans(),
    "idle": lambda w: w.reclaim.begin_idle_releases(),
    "recount": lambda w: w.reclaim.recount_slots() or sandbox_recount(w),
    "declare lost": lambda w: w.reclaim.declare_lost(w.lease()),
    "unregister": lambda w: w.fleet.unregister("w1", 1),
    "due rings": lambda w: w.reclaim.due_rings(),
    "fence": lambda w: fence(w.db),
    "queue timeouts": lambda w: w.reclaim.end_queue_timeouts(),
    "look later": lambda w: w.reclaim.look_later(),
    "free uids": lambda w: w.pruning.uids(),
    "count": lambda w: w.reclaim.count({Tally.ROWS_PRUNED: 2, Tally.UIDS_FREED: 1}),
    "raise mark": lambda w: tallies.raise_to(w.db, Tally.PRUNED_EPOCH, 7),
    "prune": lambda w: [getattr(w.pruning, name)() for name in ("execs", "history", "sandboxes", "workers")],
    "run again": lambda w: run_again(w),
    "quotas": lambda w: w.tenants.set(TENANT, Quotas(sandboxes=1, open_execs=1)),
    "more quotas": lambda w: w.tenants.set(TENANT, Quotas(sandboxes=2, storage_bytes=100)),
    "revoke": lambda w: [w.keys.revoke(TENANT, each.key_id) for each in w.keys.list(TENANT, 5, 0)[0]],
    "store": lambda w: w.usage.note_stored(key(), 5),
    "store more": lambda w: w.usage.note_stored(key(), 9),
}


def sandbox_recount(world: World) -> Any:
    """Also where nothing was seen to have drifted before."""
    return world.db.write(partial(recount, worker_id="w1"))


def remove_loose(world: World) -> None:
    for found in world.loose.due():
        world.loose.forget(*found)


def run_again(world: World) -> bool:
    """The command "done", if its record is gone."""
    claimed = world.claim(world.queued(world.sandboxes.get(key()), "done"))
    return claimed is not None and world.finish(claimed)


def apply(name: str, db: Database) -> Any:
    return apply_to(World(db), name)


def apply_to(world: World, name: str) -> Any:
    return WRITES[name](world)


def opened(world: World) -> None:
    """One command waits and one runs."""
    route = world.started()
    world.queued(route, "queued", "a")
    world.running(route, "running", "b")


def silent(world: World) -> None:
    """Nothing but the lease is at stake."""
    world.started()


def assigned(world: World) -> None:
    """After a restart: a command waits already and the sandbox is not ready yet."""
    world.register()
    route = world.resolve()
    world.set_status(route.key, "READY")
    world.queued(route, "queued", "a")
    world.set_status(route.key, "ASSIGNED")


def releasing(world: World) -> None:
    world.sandboxes.begin_release(world.started().key, None, "tester", "released")


def released(world: World) -> None:
    """The next resolve goes to another worker."""
    world.released(world.started())
    world.register("w2", isolation_level="strict")


def lost(world: World) -> None:
    """The worker is declared lost for long, and its commands have not been ended."""
    opened(world)
    world.lose()
    world.set_orphans_due()
    world.register("w2")


def idle(world: World) -> None:
    world.started()
    world.forget_activity()


def held(world: World) -> None:
    """The service has the sandbox for itself."""
    world.sandboxes.hold(world.started().fence)


def copied_anew(world: World) -> None:
    """The service has the sandbox for itself, to copy it to an id that was used before and still names a snapshot."""
    world.register()
    world.released(world.ready("copy"))
    world.set(sandboxes, sandboxes.c.sandbox_id == "copy", snapshot="earlier")
    world.sandboxes.hold(world.ready().fence)
    world.loose.announce(COPY, "snap")


def copied_late(world: World) -> None:
    """The same, and it has taken too long."""
    copied_anew(world)
    world.set(loose_snapshots, loose_snapshots.c.due_us > 0, due_us=1)


def copied(world: World) -> None:
    """The copy's row is there, its files are not."""
    held(world)
    apply_to(world, "fork")


def copied_asleep(world: World) -> None:
    """The copy is only in the object store."""
    held(world)
    world.loose.announce(COPY, "snap")
    apply_to(world, "fork asleep")


def suspending(world: World) -> None:
    world.suspensions.begin(world.started().fence)


def suspended(world: World) -> None:
    """For long, and with a snapshot."""
    world.suspended("snap")
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=0)


def wanted_empty(world: World) -> None:
    """Asleep without a snapshot on a worker that is to be empty."""
    world.suspended()
    world.fleet.drain("w1")
    world.loose.announce(key(), "snap")


def lost_shared(world: World) -> None:
    """The worker is lost for long, and others reach the files."""
    world.started(storage_mode="shared", root_id="one")
    world.lose()
    world.set_orphans_due()
    world.register("w2", storage_mode="shared", root_id="one", uid_start=500, uid_end=600)


def stored(world: World) -> None:
    """Suspended for long, and nowhere but in the object store."""
    suspended(world)
    world.suspensions.drop_copy(world.fence1, "snap")
    world.register("w2")


def waking(world: World) -> None:
    """A resume has begun and the workspace is not ready yet."""
    world.suspended()
    world.suspensions.begin_resume(key(), "tester")
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", assigned_us=0)


def woken(world: World) -> None:
    """Awake, and its snapshot is still there."""
    world.suspended("snap")
    world.sandboxes.mark_ready(world.suspensions.begin_resume(key(), "tester")[0].fence)


def overdue(world: World) -> None:
    """A command waits for long and nobody seems to have heard of it."""
    route = world.started()
    world.queued(route, "queued", "a")
    world.set(execs, execs.c.exec_id == "queued", queued_us=0, ring_us=0)


def drifted(world: World) -> None:
    """The number of slots that are taken is wrong."""
    world.started()
    world.set(workers, workers.c.worker_id == "w1", reserved=5)


def quarantined(world: World) -> None:
    """The worker is gone for good, and its released sandbox still holds a UID."""
    world.released(world.started())
    world.lose()
    world.set_orphans_due()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", held_uid=sandboxes.c.sandbox_uid)
    world.register("w2")


def forgotten(world: World) -> None:
    """Released so long ago that nothing of it is kept, on a worker that has gone since."""
    world.released(world.started())
    world.lose()
    world.set_orphans_due()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", status_us=1)
    world.set(sandbox_history, sandbox_history.c.sandbox_id == "box", started_us=1, released_us=2)
    world.register("w2")


def past(world: World) -> None:
    """A command that ended long ago beside one that ended today; something was stored on either day."""
    route = world.started()
    for exec_id in ("done", "late"):
        world.finish(world.running(route, exec_id))
    world.set(execs, execs.c.exec_id == "done", finished_us=1)
    world.set(usage_records, usage_records.c.exec_id == "done", finished_us=1)
    world.usage.note_stored(key(), 3)


def past_twice(world: World) -> None:
    """Two commands of one long gone day, one of which has been put away."""
    past(world)
    world.pruning.execs()
    world.finish(world.running(world.sandboxes.get(key()), "done"))
    world.set(execs, execs.c.exec_id == "done", finished_us=1)
    world.set(usage_records, usage_records.c.exec_id == "done", finished_us=1)


def limited(world: World) -> None:
    """The tenant may have one sandbox, which it has, and one command; and it has a key."""
    world.started()
    world.tenants.set(TENANT, Quotas(sandboxes=1, open_execs=1))
    world.keys.create(TENANT, "one", [KeyScope.READ], "tester")


def limited_empty(world: World) -> None:
    """The tenant may have one sandbox and has none."""
    world.register()
    world.tenants.set(TENANT, Quotas(sandboxes=1))


def counted(world: World) -> None:
    """Maintenance has counted and pruned before."""
    world.reclaim.count({Tally.ROWS_PRUNED: 1, Tally.UIDS_FREED: 1})
    tallies.raise_to(world.db, Tally.PRUNED_EPOCH, 3)


#: What is held before its commit in a state, and what then begins.
STATES: dict[State, tuple[tuple[str, ...], tuple[str, ...]]] = {
    opened: (
        ("admit", "claim", "finish", "cancel queued", "release", "restart", "fence"),
        (
            "admit", "admit same", "claim", "append", "finish", "cancel queued", "cancel running", "refuse", "release",
            "restart", "restart empty", "fence",
        ),
    ),
    silent: (
        ("renew", "declare lost", "fence"),
        ("renew", "declare lost", "unregister", "restart"),
    ),
    assigned: (
        ("cancel queued", "ready", "ready but empty", "restart", "look later"),
        ("admit", "cancel queued", "refuse", "ready", "ready but empty", "release", "restart", "look later"),
    ),
    releasing: (("finish release", "restart"), ("resolve", "ready", "finish release", "restart", "recount")),
    released: (("resolve",), ("resolve", "release", "restart", "recount")),
    lost: (
        ("restart", "end lost", "orphans"),
        ("resolve", "finish", "cancel queued", "append", "release", "restart", "renew", "end lost", "orphans"),
    ),
    suspending: (
        ("abort suspend", "announce snapshot", "finish suspend", "restart"),
        ("suspend", "abort suspend", "finish suspend", "admit", "resume", "release", "restart"),
    ),
    suspended: (
        ("resume", "drop copy", "sleep ends", "release", "restart"),
        ("resume", "drop copy", "sleep ends", "release", "restart", "restart empty", "recount"),
    ),
    wanted_empty: (
        ("undrain", "keep snapshot", "resume"),
        ("drain", "undrain", "resume", "keep snapshot", "release", "restart"),
    ),
    lost_shared: (("orphans",), ("orphans", "resume", "release")),
    stored: (
        ("resume", "sleep ends", "release", "restart"),
        ("resume", "sleep ends", "release", "restart", "restart empty"),
    ),
    waking: (("ready", "fall back", "restart"), ("ready", "fall back", "admit", "resume", "release", "restart")),
    woken: (("suspend", "forget snapshot", "release"), ("suspend", "forget snapshot", "release", "restart")),
    overdue: (
        ("due rings", "queue timeouts"),
        ("due rings", "queue timeouts", "cancel queued", "refuse", "restart"),
    ),
    drifted: (("recount",), ("recount", "resolve other", "release", "restart")),
    idle: (
        ("resolve", "idle", "admit whole", "touch", "hold", "suspend", "suspend idle"),
        (
            "resolve", "admit", "admit whole", "touch", "hold", "release", "idle", "suspend", "suspend idle", "restart",
            "look later",
        ),
    ),
    quarantined: (("free uids", "restart"), ("free uids", "resolve", "restart")),
    forgotten: (("prune", "resolve", "restart"), ("prune", "resolve", "restart", "look later")),
    past: (("prune", "store more"), ("prune", "run again", "store", "store more")),
    past_twice: (("prune",), ("prune", "run again")),
    limited: (
        ("quotas", "more quotas", "admit", "revoke", "release"),
        ("quotas", "more quotas", "admit", "admit whole", "resolve other", "revoke", "release"),
    ),
    limited_empty: (("resolve",), ("resolve", "resolve other", "more quotas")),
    counted: (("count", "raise mark"), ("count", "raise mark")),
    copied_anew: (
        ("fork", "fork asleep", "resolve copy", "restart"),
        ("fork", "fork asleep", "resolve copy", "release copy", "forget snapshot", "restart", "recount"),
    ),
    copied_late: (
        ("fork asleep", "give up copy", "remove loose"),
        ("fork asleep", "resolve copy", "give up copy", "remove loose"),
    ),
    copied: (("copy is ready", "release copy"), ("copy is ready", "fork", "release copy", "restart", "restart empty")),
    copied_asleep: (("resume copy", "release copy"), ("resume copy", "fork", "release copy", "restart")),
    held: (("let go", "restart"), ("let go", "hold", "admit", "touch", "suspend", "release", "restart")),
}  # fmt: skip
