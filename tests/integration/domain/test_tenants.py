"""Keys that work as long as they should, and bounds that hold whatever meets."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from typing import Any

import pytest

from sandloom.broker.api_keys import KeyMint
from sandloom.db import Database
from sandloom.db.tables import api_keys
from sandloom.errors import EnvelopeRefused, KeyNotFound, KeyScopeMissing, QuotaExceeded
from sandloom.execs.records import Exec
from sandloom.tenants.keys import Keys
from sandloom.tenants.recent import Recent
from sandloom.tenants.records import KeyScope, Quotas
from sandloom.tenants.service import Tenants
from tests.integration.domain.pairs import apply
from tests.integration.domain.paused import interleave
from tests.integration.domain.test_plans import sent
from tests.integration.domain.world import DONE, MINT, TENANT, World, key, raised, request

ALL = tuple(KeyScope)


@pytest.fixture
def world(db: Database) -> World:
    """Nothing that was looked up is remembered."""
    return World(db, kept_seconds=0)


def bounded(world: World, **quotas: int) -> None:
    world.tenants.set(TENANT, Quotas(**quotas))


def excess(found: Any) -> tuple[str, int, int]:
    assert isinstance(found, QuotaExceeded), repr(found)
    assert found.retry_after_seconds is not None
    return found.extra["quota"], found.extra["limit"], found.extra["used"]


# --- keys ---


def test_a_key_is_nowhere_but_in_its_answer(world: World):
    key, text = world.keys.create("acme", "ci", ALL, "operator")
    assert world.keys.of_text(text) is not None
    assert (key.tenant_id, key.usable, key.scopes) == ("acme", True, frozenset(ALL))
    secret = text.rsplit(":", 1)[1]
    assert secret not in repr(world.dump())
    assert secret[:32] not in repr(world.dump())
    assert secret not in repr(key)


@pytest.mark.parametrize("place", [-1, -43, -44, -75, 5])
def test_a_key_of_which_one_character_differs_is_none(world: World, place: int):
    _, text = world.keys.create("acme", "ci", ALL, "operator")
    other = "B" if text[place] == "A" else "A"
    assert world.keys.of_text(text[:place] + other + (text[place + 1 :] if place != -1 else "")) is None


def test_what_this_deployment_did_not_make_costs_no_look_at_the_database(world: World):
    foreign = str(KeyMint("another secret").new("acme"))
    assert sent(world.db, lambda: [world.keys.of_text(text) for text in (foreign, "x", "", "slk_acme:1:2")]) == []


def test_a_key_that_was_revoked_or_has_expired_does_not_work(world: World):
    key, text = world.keys.create("acme", "ci", ALL, "operator")
    with pytest.raises(KeyNotFound):
        world.keys.revoke("other", key.key_id)
    assert world.keys.of_text(text) is not None
    revoked = world.keys.revoke("acme", key.key_id)
    assert world.keys.revoke("acme", key.key_id).revoked_us == revoked.revoked_us is not None
    assert world.keys.of_text(text) is None
    _, text = world.keys.create("acme", "brief", ALL, "operator", lifetime_seconds=60)
    assert world.keys.of_text(text) is not None
    world.set(api_keys, api_keys.c.name == "brief", expires_us=world.now_us() - 1)
    assert world.keys.of_text(text) is None
    listed, total = world.keys.list("acme", 10, 0)
    assert ([each.usable for each in listed], total) == ([False, False], 2)
    assert world.keys.list("other", 10, 0) == ([], 0)


def test_messages_want_a_key_that_works_and_may_send_them(world: World):
    sender, _ = world.keys.create("acme", "sends", [KeyScope.TASKS], "operator")
    reader, text = world.keys.create("acme", "reads", [KeyScope.READ], "operator")
    world.keys.demand_sender(sender.key_id)
    with pytest.raises(KeyScopeMissing):
        world.keys.demand_sender(reader.key_id)
    world.keys.revoke("acme", sender.key_id)
    for unknown in (sender.key_id, "acme:000000000000"):
        with pytest.raises(EnvelopeRefused):
            world.keys.demand_sender(unknown)
    signing = MINT.signing_key(reader.key_id)
    assert signing is not None
    assert signing.secret.decode() == text[-43:]
    assert signing.tenant_id == "acme"


def test_a_key_is_looked_up_once_in_a_while_and_forgotten_where_it_is_revoked(world: World):
    keys = Keys(world.db, MINT, kept_seconds=60)
    key, text = keys.create("acme", "ci", ALL, "operator")
    assert len(sent(world.db, lambda: [keys.of_text(text) for _ in range(5)])) == 1
    world.keys.revoke("acme", key.key_id)
    assert keys.of_text(text) is not None  # by another process: for as long as it is known
    keys.revoke("acme", key.key_id)
    assert keys.of_text(text) is None


def test_what_was_looked_up_is_kept_for_its_time_and_no_longer():
    now, numbers = [0.0], itertools.count(1)
    recent: Recent[str, int] = Recent(lambda name: next(numbers), 5.0, lambda: now[0])
    assert [recent.get("a"), recent.get("a"), recent.get("b")] == [1, 1, 2]
    now[0] = 4.9
    assert recent.get("a") == 1
    now[0] = 5.0
    assert recent.get("a") == 3
    recent.forget("a")
    assert recent.get("a") == 4


# --- bounds ---


def test_sandboxes_are_bounded_and_those_that_live_are_still_found(world: World):
    world.register()
    bounded(world, sandboxes=2)
    route = world.ready("one")
    world.ready("two")
    assert excess(raised(lambda: world.resolve("three"))) == ("sandboxes", 2, 2)
    assert world.resolve("one").generation == route.generation
    assert world.resolve("three", tenant_id="other")
    assert world.suspensions.begin(route.fence)
    assert world.suspensions.finish(route.fence)
    assert excess(raised(lambda: world.resolve("three")))[0] == "sandboxes"
    world.released(world.sandboxes.get(route.key))
    world.resolve("three")
    assert excess(raised(lambda: world.resolve("one")))[0] == "sandboxes"


def test_copies_are_sandboxes_too(world: World):
    route = world.started()
    world.sandboxes.hold(route.fence)
    bounded(world, sandboxes=1)
    assert excess(raised(lambda: apply("fork", world.db)))[0] == "sandboxes"
    assert excess(raised(lambda: apply("fork asleep", world.db)))[0] == "sandboxes"
    bounded(world, sandboxes=2)
    apply("fork", world.db)


def test_commands_that_have_not_ended_are_bounded(world: World):
    route = world.started()
    bounded(world, open_execs=2, queued_execs=1)
    world.queued(route, "one", "a")
    assert excess(raised(lambda: world.queued(route, "two", "b"))) == ("queued_execs", 1, 1)
    world.running(route, "one", "a")
    world.running(route, "two", "b")
    assert excess(raised(lambda: world.queued(route, "three", "c"))) == ("open_execs", 2, 2)
    assert world.execs.admit(route.key, route.generation, request("one", "a"))[2] is False
    assert world.finish(world.execs.get(world.exec("two").key))
    world.queued(route, "three", "c")


def test_another_tenant_s_commands_do_not_count(world: World):
    world.register()
    bounded(world, open_execs=1, queued_execs=1)
    for tenant_id in ("other", TENANT):
        world.queued(world.ready(tenant_id=tenant_id))


@pytest.mark.parametrize(("quota", "used"), [("cpu_seconds_a_day", 3), ("model_tokens_a_day", 40)])
def test_what_a_day_brings_is_bounded(world: World, quota: str, used: int):
    route = world.started()
    bounded(world, **{quota: used})
    usage = {"cpu_ms": 3999, "model_tokens": 40}
    assert world.finish(world.running(route), dataclasses.replace(DONE, usage=usage))
    assert excess(raised(lambda: world.queued(route, "more"))) == (quota, used, used)
    assert world.resolve().key == route.key
    bounded(world, **{quota: used + 1})
    world.queued(route, "more")


def test_files_are_bounded(world: World):
    route = world.started()
    bounded(world, storage_bytes=10)
    world.tenants.demand_room(TENANT)
    world.usage.note_stored(route.key, 10)
    for call in (
        lambda: world.tenants.demand_room(TENANT),
        lambda: world.queued(route),
        lambda: world.resolve("more"),
    ):
        assert excess(raised(call)) == ("storage_bytes", 10, 10)
    world.tenants.demand_room("other")


def test_of_two_that_meet_at_a_bound_one_gets_in(world: World, rival: Database):
    world.register()
    bounded(world, sandboxes=1)
    results = interleave(world.db, rival, partial(apply, "resolve"), partial(apply, "resolve other"))
    assert excess(results[1]) == ("sandboxes", 1, 1)
    world.ready()
    bounded(world, open_execs=1)
    one, other = interleave(world.db, rival, partial(apply, "admit"), partial(admit_beside))
    assert isinstance(one[0], Exec)
    assert excess(other) == ("open_execs", 1, 1)


def admit_beside(db: Database) -> Any:
    return World(db).execs.admit(key(), 1, request("beside", "beside"))


def test_a_tenant_without_bounds_costs_nothing_more(world: World):
    tenants = Tenants(world.db, kept_seconds=60)
    assert tenants.asks(TENANT).bounded is False
    ask = tenants.asks(TENANT)
    assert sent(world.db, lambda: world.db.read(lambda c: (ask.command(c), ask.sandbox(c), tenants.asks(TENANT)))) == []
