"""Whatever is in the object store is named by a row, and what a sandbox names is never removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from sandloom.clock import MICROSECONDS
from sandloom.db import Database, open_database
from sandloom.db.tables import loose_snapshots, sandboxes
from sandloom.errors import CommitUnknown, ObjectStoreUnavailable, SandboxExists, Unavailable
from sandloom.ids import SandboxKey
from sandloom.objects.directory import DirectoryStore
from sandloom.sandboxes.loose import ANNOUNCED_SECONDS
from sandloom.sandboxes.records import Route
from tests.integration.domain.pairs import COPY, apply, apply_to, copied_anew, copied_late, wanted_empty
from tests.integration.domain.paused import interleave
from tests.integration.domain.test_server_faults import COMMIT
from tests.integration.domain.world import World, key
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.proxy import Proxy
from workers.announced import announced
from workers.snapshots import Snapshots

Take = Callable[[Database], Any]


def loose(world: World) -> dict[str, bool]:
    """Whether nobody can keep it any more, by name."""
    return {row.snapshot: row.due_us == 0 for row in world.rows(loose_snapshots)}


def copy_of(world: World) -> tuple[str, str | None]:
    row = world.box(COPY)
    return row.status, row.snapshot


def fork(db: Database) -> Any:
    return apply("fork asleep", db)


def give_up(db: Database) -> bool:
    return World(db).loose.doom(COPY, "snap")


def left_behind(db: Database) -> list[tuple[SandboxKey, str]]:
    return World(db).loose.due()


@pytest.mark.parametrize(("take", "nothing"), [(give_up, False), (left_behind, [])])
def test_what_is_kept_is_not_removed(world: World, rival: Database, take: Take, nothing: Any):
    copied_late(world)
    made, taken = interleave(world.db, rival, fork, take)
    assert (made.status, taken) == ("SUSPENDED", nothing)
    assert copy_of(world) == ("SUSPENDED", "snap")
    assert loose(world) == {"earlier": True}
    assert world.loose.due() == [(COPY, "earlier")]
    world.check()


@pytest.mark.parametrize(("take", "all_of_it"), [(give_up, True), (left_behind, [(COPY, "snap")])])
def test_what_is_to_be_removed_is_not_kept(world: World, rival: Database, take: Take, all_of_it: Any):
    copied_late(world)
    taken, made = interleave(world.db, rival, take, fork)
    assert taken == all_of_it
    assert isinstance(made, ObjectStoreUnavailable)
    assert copy_of(world) == ("RELEASED", "earlier")
    assert loose(world) == {"snap": True}
    world.loose.forget(COPY, "snap")
    assert isinstance(interleave(world.db, rival, fork, fork)[0], ObjectStoreUnavailable)
    assert copy_of(world) == ("RELEASED", "earlier")
    world.check()


def test_of_two_forks_to_one_id_the_second_leaves_its_snapshot_to_itself(world: World, rival: Database):
    copied_anew(world)
    world.loose.announce(COPY, "other")
    source = world.sandboxes.get(key())

    def fork_too(db: Database) -> Route:
        return World(db).forks.keep(source, COPY, "scope", "other.digest", "tester")

    _, late = interleave(world.db, rival, fork, fork_too)
    assert isinstance(late, SandboxExists)
    assert copy_of(world) == ("SUSPENDED", "snap")
    assert loose(world) == {"earlier": True, "other": False}
    assert world.loose.doom(COPY, "other")
    world.check()


def test_a_sleeper_does_not_come_to_name_what_is_to_be_removed(world: World, rival: Database):
    wanted_empty(world)
    kept, doomed = interleave(
        world.db, rival, partial(apply, "keep snapshot"), lambda db: World(db).loose.doom(key(), "snap")
    )
    assert (kept, doomed, world.box(key()).snapshot, loose(world)) == (True, False, "snap", {})
    world.empty()
    wanted_empty(world)
    doomed, kept = interleave(
        world.db, rival, lambda db: World(db).loose.doom(key(), "snap"), partial(apply, "keep snapshot")
    )
    assert doomed
    assert isinstance(kept, ObjectStoreUnavailable)
    assert (world.box(key()).snapshot, loose(world)) == (None, {"snap": True})


def test_what_is_announced_has_its_time(world: World):
    world.loose.announce(COPY, "snap")
    left_us = world.row(loose_snapshots).due_us - world.now_us()
    assert 0 <= ANNOUNCED_SECONDS * MICROSECONDS - left_us < 60 * MICROSECONDS
    assert world.loose.due() == []
    world.loose.forget(COPY, "snap")
    assert loose(world) == {"snap": False}
    world.set(loose_snapshots, loose_snapshots.c.due_us > 0, due_us=world.now_us())
    assert [world.loose.due() for _ in range(2)] == [[(COPY, "snap")]] * 2
    world.loose.forget(COPY, "snap")
    assert loose(world) == {}


@pytest.mark.parametrize("named", ["begun", "earlier.digest"])
def test_a_suspend_that_ends_without_a_snapshot_leaves_what_the_row_named(world: World, named: str):
    route = world.started()
    world.suspensions.begin(route.fence)
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", snapshot=named)
    assert world.suspensions.finish(route.fence)
    assert (world.box(key()).snapshot, world.loose.due()) == (None, [(key(), named)])
    assert not world.suspensions.finish(route.fence)
    world.check()


# --- whoever makes one, over a network ---


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.server) for name in ("postgres", "mariadb")])
def far(request: pytest.FixtureRequest) -> Iterator[tuple[World, Proxy]]:
    server: PostgresServer | MariaDBServer = request.getfixturevalue(request.param)
    near: Database = request.getfixturevalue(f"hasty_{request.param}")
    with Proxy(server.port) as proxy:
        url = near.engine.url.render_as_string(hide_password=False)
        database = open_database(url.replace(f":{server.port}/", f":{proxy.port}/"))
        world = World(database)
        world.empty()
        world.sandboxes.hold(world.started().fence)
        yield world, proxy
        database.dispose()


def make(world: World, store: DirectoryStore, before_keep: Callable[[], object]) -> Route:
    snapshots = Snapshots(store, cast(Any, None))
    with announced(world.loose, snapshots, COPY) as token:
        store.put(f"snapshots/default/copy/{token}/manifest.json", [b"whole"])
        before_keep()
        return world.forks.keep(world.sandboxes.get(key()), COPY, "scope", f"{token}.digest", "tester")


def objects(store: DirectoryStore) -> list[str]:
    return [found.key.split("/")[-2] for found in store.list("snapshots/")]


def test_a_copy_whose_commit_was_not_answered_has_its_files(far: tuple[World, Proxy], tmp_path: Path):
    (world, proxy), store = far, DirectoryStore(tmp_path)
    with pytest.raises(CommitUnknown):
        make(world, store, lambda: proxy.drop_answer_to(COMMIT[world.db.dialect]))
    assert proxy.dropped.is_set()
    status, snapshot = copy_of(world)
    assert status == "SUSPENDED"
    assert [f"{token}.digest" for token in objects(store)] == [snapshot]
    assert loose(world) == {}
    world.check()


def test_what_cannot_be_kept_is_removed_and_without_a_database_left_to_maintenance(
    far: tuple[World, Proxy], tmp_path: Path
):
    (world, proxy), store = far, DirectoryStore(tmp_path)
    with pytest.raises(Unavailable):
        make(world, store, proxy.cut)
    proxy.restore()
    (token,) = objects(store)
    assert loose(world) == {token: False}
    with pytest.raises(SandboxExists):
        make(world, store, lambda: apply_to(world, "fork"))
    assert (objects(store), list(loose(world))) == ([token], [token])
    world.check()
