"""Transactions over a network that breaks at the worst moments, and a server that goes away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from sandloom.db import Database, open_database
from sandloom.errors import CommitUnknown, Unavailable
from tests.integration.domain.conftest import SERVERS
from tests.integration.domain.races import together
from tests.integration.domain.world import World
from tests.services.mariadb import MariaDBServer
from tests.services.postgres import PostgresServer
from tests.services.proxy import Proxy

pytestmark = pytest.mark.server

#: As the drivers send it; elsewhere the word stands in READ COMMITTED and autocommit.
COMMIT = {"postgresql": b"COMMIT\x00", "mariadb": b"\x03COMMIT"}
#: Locks of this session are waited for no longer than this.
BRIEFLY = {
    "postgresql": "SET LOCAL lock_timeout = '50ms'",
    "mariadb": "SET SESSION innodb_lock_wait_timeout = 1",
}


@pytest.fixture(params=SERVERS)
def near(request: pytest.FixtureRequest) -> Database:
    """An empty database of each server."""
    database: Database = request.getfixturevalue(f"hasty_{request.param}")
    World(database).empty()
    return database


@pytest.fixture
def server(request: pytest.FixtureRequest, near: Database) -> PostgresServer | MariaDBServer:
    """Where ``near`` is."""
    found: PostgresServer | MariaDBServer = request.getfixturevalue(
        "mariadb" if near.dialect == "mariadb" else "postgres"
    )
    return found


@pytest.fixture
def proxy(server: PostgresServer | MariaDBServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def far(near: Database, proxy: Proxy) -> Iterator[Database]:
    """``near`` as seen through the proxy, with a connection that is already open."""
    database = open_database(near.engine.url.set(port=proxy.port).render_as_string(hide_password=False))
    database.read(probe)
    yield database
    database.dispose()


def probe(connection: Connection) -> int:
    return connection.execute(text("SELECT 1")).scalar_one()


def insert(connection: Connection, op_id: str = "op") -> None:
    connection.execute(text("INSERT INTO operations VALUES ('default', :op, 0)"), {"op": op_id})


def operations(db: Database) -> set[str]:
    return db.read(lambda connection: set(connection.execute(text("SELECT op_id FROM operations")).scalars()))


def test_a_commit_whose_answer_is_lost_is_reported_as_unknown(far: Database, proxy: Proxy, near: Database):
    calls = []

    def once(connection: Connection) -> None:
        calls.append(1)
        insert(connection)

    proxy.drop_answer_to(COMMIT[far.dialect])
    with pytest.raises(CommitUnknown):
        far.write(once)
    assert proxy.dropped.wait(60)
    assert (len(calls), operations(near)) == (1, {"op"})
    assert far.read(probe) == 1


@pytest.mark.parametrize(("pattern", "times"), [(b"BEGIN", 1), (b"INSERT", 2)])
def test_a_connection_that_breaks_before_the_commit_repeats_the_whole(
    far: Database, proxy: Proxy, pattern: bytes, times: int
):
    calls = []

    def both(connection: Connection) -> None:
        calls.append(1)
        insert(connection, "one")
        insert(connection, "two")

    proxy.drop_answer_to(pattern)
    far.write(both)
    assert proxy.dropped.is_set()
    assert operations(far) == {"one", "two"}
    assert len(calls) == times


def test_a_connection_that_breaks_twice_does_nothing(far: Database, proxy: Proxy, near: Database):
    calls = []

    def cut(connection: Connection) -> None:
        calls.append(1)
        insert(connection, "one")
        proxy.reset_connections()
        insert(connection, "two")

    with pytest.raises(Unavailable) as raised:
        far.write(cut)
    assert not isinstance(raised.value, CommitUnknown)
    assert (len(calls), operations(near)) == (2, set())
    assert far.read(probe) == 1


def test_no_server_is_unavailable_and_its_return_is_noticed(far: Database, proxy: Proxy):
    proxy.cut()
    for call in (lambda: far.read(probe), lambda: far.write(insert)):
        with pytest.raises(Unavailable) as raised:
            call()
        assert not isinstance(raised.value, CommitUnknown)
        assert raised.value.retryable
    proxy.restore()
    far.write(insert)
    assert operations(far) == {"op"}


def test_a_read_on_a_connection_that_died_is_repeated(far: Database, proxy: Proxy):
    proxy.reset_connections()
    assert far.read(probe) == 1
    proxy.drop_answer_to(b"SELECT 1")
    assert far.read(probe) == 1


def test_many_connections_that_died_are_all_replaced(far: Database, proxy: Proxy):
    barrier = threading.Barrier(8)

    def hold(connection: Connection) -> None:
        probe(connection)
        barrier.wait(30)

    assert together([lambda: far.read(hold)] * 8) == [None] * 8
    proxy.reset_connections()
    for number in range(8):
        far.write(partial(insert, op_id=f"op-{number}"))
    assert len(operations(far)) == 8


def test_an_error_of_the_statement_itself_is_not_an_outage(far: Database):
    far.write(insert)
    with pytest.raises(IntegrityError):
        far.write(insert)
    with pytest.raises(ZeroDivisionError):
        far.write(lambda connection: (insert(connection, "half"), 1 // 0))  # type: ignore[func-returns-value]
    assert operations(far) == {"op"}


def test_deadlocks_are_repeated_and_never_shown(near: Database):
    for name in ("a", "b"):
        near.write(partial(insert, op_id=name))
    barrier = threading.Barrier(2)
    calls: list[str] = []

    def lock_both(first: str, second: str) -> None:
        def move(connection: Connection) -> None:
            calls.append(first)
            if near.dialect == "postgresql":
                connection.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
            update = text("UPDATE operations SET seen_us = seen_us + 1 WHERE op_id = :op")
            connection.execute(update, {"op": first})
            if len(calls) <= 2:
                barrier.wait(60)
            connection.execute(update, {"op": second})

        near.write(move)

    assert together([lambda: lock_both("a", "b"), lambda: lock_both("b", "a")]) == [None, None]
    assert len(calls) == 3
    seen = near.read(lambda c: c.execute(text("SELECT sum(seen_us) FROM operations")).scalar_one())
    assert seen == 4


def test_a_transaction_that_waited_too_long_for_a_lock_is_repeated_whole(near: Database):
    held, calls = threading.Event(), []
    free = threading.Event()
    near.write(insert)
    add = text("UPDATE operations SET seen_us = seen_us + 1 WHERE op_id = :op")

    def hold(connection: Connection) -> None:
        connection.execute(add, {"op": "op"})
        held.set()
        assert free.wait(30)

    def wait_briefly(connection: Connection) -> None:
        calls.append(1)
        insert(connection, "before")
        if len(calls) == 1:
            connection.execute(text(BRIEFLY[near.dialect]))
        else:
            free.set()
        connection.execute(add, {"op": "op"})

    def waiting() -> None:
        assert held.wait(30)
        near.write(wait_briefly)

    assert together([lambda: near.write(hold), waiting]) == [None, None]
    assert len(calls) == 2
    assert operations(near) == {"op", "before"}
    near.sessions.close_idle()  # the session that is so impatient


def test_a_server_that_restarts_is_used_again(near: Database, server: PostgresServer | MariaDBServer):
    world = World(near)
    route = world.started()
    world.queued(route, "before", "a")
    server.stop()
    with pytest.raises(Unavailable):
        world.queued(route, "meanwhile", "b")
    with pytest.raises(Unavailable):
        world.exec("before")
    server.start()
    world.queued(route, "after", "b")
    assert [e.key.exec_id for e in world.execs.open_for("w1", 1)] == ["before", "after"]
    world.check()
