"""A command's moves are one statement each on PostgreSQL. The network breaks before or after it; nobody says which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from sandloom.db import Database, open_database
from sandloom.errors import CommitUnknown, Unavailable
from sandloom.execs.records import Exec
from sandloom.ids import ExecKey
from tests.integration.domain.world import DONE, World, request
from tests.services.postgres import PostgresServer
from tests.services.proxy import Proxy
from workers.identity import Identity
from workers.ledger import Ledger

pytestmark = pytest.mark.server

Break = Callable[[Proxy, str], None]


def after(proxy: Proxy, move: str) -> None:
    """The statement is carried out and its answer lost."""
    proxy.drop_answer_to(f"EXECUTE {move}_".encode())


def before(proxy: Proxy, move: str) -> None:
    """Connections of the pool were broken meanwhile, as by a restart of the server."""
    proxy.reset_connections()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def world(hasty_postgres: Database, postgres: PostgresServer, proxy: Proxy) -> Iterator[World]:
    """Seen through the proxy, on connections that know every statement."""
    near = hasty_postgres.engine.url.render_as_string(hide_password=False)
    database = open_database(near.replace(f":{postgres.port}/", f":{proxy.port}/"))
    world = World(database)
    world.empty()
    world.finish(world.running(world.started(), "warm"))
    yield world
    database.dispose()


def ledger(world: World, record: Exec) -> Ledger:
    identity = Identity(record.worker_id, record.worker_epoch)
    return Ledger(world.execs, identity, record.key, record.generation, lambda: False)


@pytest.mark.parametrize("break_it", [before, after])
def test_every_move_is_made_once_and_known_to_be(world: World, proxy: Proxy, break_it: Break):
    route = world.ready()
    break_it(proxy, "admit")
    admitted, _, created = world.execs.admit(route.key, route.generation, request("run", "tests"))
    assert (admitted.status, created) == ("QUEUED", True)

    own = ledger(world, admitted)
    break_it(proxy, "claim")
    claimed = own.claim()
    assert claimed is not None
    assert (claimed.status, claimed.last_seq) == ("RUNNING", 2)

    break_it(proxy, "append")
    assert own.append([("stdout", b"a"), ("stderr", b"b")])
    break_it(proxy, "finish")
    assert own.finish([("stdout", b"c")], DONE)
    assert own.seq == 6
    kinds = [kind for _, kind, _ in world.events(admitted.key)]
    assert kinds == ["status", "status", "stdout", "stderr", "stdout", "status"]
    assert world.exec("run").stdout == b"ac"
    assert proxy.dropped.is_set() == (break_it is after)
    world.check()


def test_an_admission_that_cannot_be_looked_up_says_that_it_may_have_happened(world: World, proxy: Proxy):
    route = world.ready()
    answers: list[Exception] = [CommitUnknown(), Unavailable()]

    class Away:
        dialect = world.db.dialect

        def read(self, function: Any) -> Any:
            return world.db.read(function)

        def write_one(self, function: object) -> None:
            raise answers.pop(0)

    with pytest.raises(CommitUnknown):
        World(cast(Database, Away())).execs.admit(route.key, route.generation, request("run", "tests"))
    assert answers == []


def test_a_claim_that_was_lost_to_another_is_not_taken_for_ours(world: World, proxy: Proxy):
    record = world.queued(world.ready(), "run")
    own = ledger(world, record)
    world.execs.cancel(record.key)
    proxy.drop_answer_to(b"EXECUTE claim_")
    assert own.claim() is None
    assert not own.append([("stdout", b"x")])
    proxy.drop_answer_to(b"EXECUTE finish_")
    assert not own.finish([], DONE)
    assert world.execs.get(ExecKey(*record.key)).status == "CANCELLED"
    world.check()
