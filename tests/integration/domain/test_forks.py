"""Copies of sandboxes, as rows: where they are, what they are told, and whom they leave alone."""

from __future__ import annotations

import pytest

from sandloom.db.tables import sandbox_history, sandboxes, workers
from sandloom.errors import NoWorkerAvailable, SandboxExists, ScopeMismatch
from sandloom.sandboxes.gateway import SandboxGateway
from tests.integration.domain.test_gateways import Worker
from tests.integration.domain.world import World, key

COPY = key("copy")


def test_a_copy_is_assigned_beside_its_source_whatever_the_profile_is_by_now(world: World):
    source = world.started()
    world.set(workers, workers.c.worker_id == "w1", declared_hash="of another release")
    world.register("w2", isolation_level="strict")
    copy = world.forks.begin(source, COPY, "elsewhere", "tester")
    assert (copy.status, copy.worker_id, copy.generation, copy.workspace) == ("ASSIGNED", "w1", 1, "kept")
    assert (copy.workspace_scope_id, copy.profile_id) == ("elsewhere", source.profile_id)
    assert copy.sandbox_uid != source.sandbox_uid
    assert world.sandboxes.get(source.key) == source
    world.check()


def test_an_id_is_used_again_only_after_its_release_and_in_its_scope(world: World):
    source = world.started()
    first = world.forks.begin(source, COPY, "scope", "tester")
    for copy in (COPY, key()):
        with pytest.raises(SandboxExists):
            world.forks.begin(source, copy, "scope", "tester")
        with pytest.raises(SandboxExists):
            world.forks.keep(source, copy, "scope", "snap", "tester")
    world.released(first)
    with pytest.raises(ScopeMismatch):
        world.forks.begin(source, COPY, "another", "tester")
    again = world.forks.begin(source, COPY, "scope", "tester")
    assert (again.generation, again.workspace) == (2, "kept")
    assert len([row for row in world.rows(sandbox_history) if row.sandbox_id == "copy"]) == 2
    world.check()


def test_a_worker_that_is_full_or_restarted_takes_no_copy(world: World):
    source = world.started(capacity=1)
    with pytest.raises(NoWorkerAvailable):
        world.forks.begin(source, COPY, "scope", "tester")
    world.restart(capacity=2)
    with pytest.raises(NoWorkerAvailable):
        world.forks.begin(source, COPY, "scope", "tester")
    assert [row.sandbox_id for row in world.rows(sandboxes)] == ["box"]
    world.check()


def test_a_copy_whose_worker_dies_before_the_files_are_there_keeps_saying_that_it_has_some(world: World):
    copy = world.forks.begin(world.started(), COPY, "scope", "tester")
    world.register("w1", takeover=True, present=frozenset({key()}))
    again = world.sandboxes.get(COPY)
    assert (again.status, again.generation, again.workspace) == ("ASSIGNED", copy.generation + 1, "kept")
    assert world.sandboxes.mark_ready(again.fence, "lost").workspace == "lost"


def test_a_copy_in_the_object_store_wakes_anywhere_and_its_source_sleeps_on(world: World):
    source = world.suspended("snap")
    world.set_orphans_due()
    world.register("w2")
    world.loose.announce(COPY, "of the copy")
    copy = world.forks.keep(source, COPY, "scope", "of the copy", "tester")
    assert (copy.status, copy.snapshot, copy.has_directory) == ("SUSPENDED", "of the copy", False)
    world.check()
    woken, _ = world.suspensions.begin_resume(COPY, "tester")
    assert (woken.worker_id, woken.workspace, woken.generation) == ("w2", "restored", 2)
    assert world.sandboxes.get(key()) == source
    world.check()


def test_an_owner_that_is_full_is_asked_to_give_up_what_another_one_can_restore(world: World):
    world.suspended("snap", capacity=1)
    world.ready("other")
    worker = Worker()
    gateway = SandboxGateway(world.sandboxes, world.suspensions, worker)
    with pytest.raises(NoWorkerAvailable):
        gateway.resume(key(), "tester")
    assert worker.called == []
    world.register("w2")

    def make_way(task, args):
        if task == "sandloom.resume":
            assert world.suspensions.drop_copy(world.sandboxes.get(key()).fence, "snap")
            return {"resumed": world.suspensions.begin_resume(key(), "tester")[1]}
        world.sandboxes.mark_ready(world.sandboxes.get(key()).fence)
        return {}

    worker.answer = make_way
    woken, resumed = gateway.resume(key(), "tester")
    assert (resumed, woken.status, woken.worker_id, woken.workspace) == (True, "READY", "w2", "restored")
    assert [(queue, task) for queue, task, _ in worker.called] == [
        ("sandloom.worker.w1", "sandloom.resume"),
        ("sandloom.worker.w2", "sandloom.connect"),
    ]
    world.check()


def test_what_the_service_holds_for_a_template_or_a_copy_does_not_idle(world: World):
    world.sandboxes.hold(world.started().fence)
    world.reclaim_policy(idle_ttl_seconds=0.001, longest_hold_seconds=3600)
    assert world.reclaim.begin_idle_releases() == []
    world.reclaim_policy(idle_ttl_seconds=0.001, longest_hold_seconds=0)
    assert [route.key for route in world.reclaim.begin_idle_releases()] == [key()]
