"""A run of maintenance looks at what can be due, and never later than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandloom.clock import MICROSECONDS
from sandloom.db.tables import sandboxes
from sandloom.reclaim.look import LOOK_AGAIN_SECONDS
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.sandboxes.records import Route
from tests.integration.domain.world import World, key

POLICY = ReclaimPolicy()


def looked_at_in(world: World) -> float | None:
    """Seconds until the one sandbox is looked at again; None when that is now."""
    row, now_us = world.row(sandboxes), world.now_us()
    return None if row.look_us <= now_us else (row.look_us - now_us) / MICROSECONDS


def suspended(world: World) -> Route:
    return world.suspended()


def suspending(world: World) -> Route:
    route = world.started()
    world.suspensions.begin(route.fence)
    return route


def releasing(world: World) -> Route:
    return world.sandboxes.begin_release(world.started().key, None, "tester", "released")


def running(world: World) -> Route:
    route = world.started()
    world.queued(route)
    return route


def quarantined(world: World) -> Route:
    route = world.released(world.started())
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", held_uid=route.sandbox_uid)
    return route


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (World.started, POLICY.idle_ttl_seconds),
        (running, POLICY.idle_ttl_seconds),
        (releasing, POLICY.stalled_release_seconds),
        (suspending, POLICY.stalled_suspend_seconds),
        (suspended, LOOK_AGAIN_SECONDS),
        (quarantined, LOOK_AGAIN_SECONDS),
        (lambda w: w.released(w.started()), LOOK_AGAIN_SECONDS),
    ],
)
def test_a_sandbox_is_left_alone_until_something_can_be_due(
    world: World, state: Callable[[World], Any], seconds: float
):
    state(world)
    assert looked_at_in(world) is None
    assert world.reclaim.look_later() == 1
    left = looked_at_in(world)
    assert left is not None
    assert seconds - 60 < left <= seconds
    assert world.reclaim.look_later() == 0


def test_every_move_makes_it_looked_at_again(world: World):
    route = world.started()
    for move in (
        lambda: world.suspensions.begin(route.fence),
        lambda: world.suspensions.abort(route.fence),
        lambda: world.suspensions.begin(route.fence) and world.suspensions.finish(route.fence),
        lambda: world.suspensions.begin_resume(route.key, "tester"),
        lambda: world.suspensions.fall_back(route.fence),
        lambda: world.suspensions.begin_resume(route.key, "tester"),
        lambda: world.restart(),
        lambda: world.sandboxes.begin_release(route.key, None, "tester", "released"),
        lambda: world.sandboxes.finish_release(world.sandboxes.get(route.key).fence),
        lambda: world.resolve(),
    ):
        world.reclaim.look_later()
        assert looked_at_in(world) is not None
        move()
        assert looked_at_in(world) is None


def test_what_is_due_stays_due_until_it_is_done(world: World):
    world.started()
    world.forget_activity()
    assert world.reclaim.look_later() == 0
    assert [route.key for route in world.reclaim.begin_idle_releases()] == [key()]


def test_work_in_between_makes_a_look_find_nothing_and_the_next_is_later(world: World):
    world.started()
    world.reclaim.look_later()
    before = world.row(sandboxes).look_us
    world.resolve()
    world.set(sandboxes, sandboxes.c.sandbox_id == "box", look_us=1)
    assert world.reclaim.begin_idle_releases() == []
    assert world.reclaim.look_later() == 1
    assert world.row(sandboxes).look_us > before


def test_an_unneeded_snapshot_is_due_at_once(world: World):
    world.suspended("snap")
    world.sandboxes.mark_ready(world.suspensions.begin_resume(key(), "tester")[0].fence)
    assert world.reclaim.look_later() == 0
    (route,) = world.dormant.unneeded_snapshots()
    assert world.dormant.forget_snapshot(route)
    assert world.reclaim.look_later() == 1


def test_looks_are_put_off_in_batches(db):
    world = World(db, reclaim=ReclaimPolicy(batch_size=2))
    world.register()
    for number in range(3):
        world.ready(f"box-{number}")
    assert [world.reclaim.look_later() for _ in range(3)] == [2, 1, 0]
