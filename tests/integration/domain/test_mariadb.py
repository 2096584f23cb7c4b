"""What MariaDB does differently unless it is told: comparisons, counts, packets, sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text, update

from sandloom.db import Database, check_schema, open_database, upgrade
from sandloom.db.mysql import MIN_PACKET_BYTES
from sandloom.db.tables import execs, operations
from sandloom.errors import DatabaseUnsuitable, ScopeBusy
from sandloom.execs.repository import MAX_EVENT_BYTES
from sandloom.ids import SandboxKey
from sandloom.sandboxes.repository import fetch
from tests.integration.domain.world import World, request
from tests.services.mariadb import MariaDBServer

pytestmark = pytest.mark.server

EVERY_BYTE = bytes(range(256)) * (MAX_EVENT_BYTES // 256)


@pytest.fixture
def world(hasty_mariadb: Database) -> World:
    world = World(hasty_mariadb)
    world.empty()
    return world


@pytest.fixture
def other_settings(mariadb: MariaDBServer, hasty_mariadb: Database) -> Iterator[None]:
    """Settings that the test changes for new sessions are as before afterwards."""
    names = ("max_allowed_packet", "binlog_format", "default_storage_engine", "sql_mode")
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")
        before = dict(zip(names, cursor.fetchone() or (), strict=True))
    yield
    for name, value in before.items():
        mariadb.execute(f"SET GLOBAL {name} = {value if isinstance(value, int) else repr(value)}")


def ask(db: Database, question: str) -> object:
    return db.read(lambda connection: connection.exec_driver_sql(question).scalar_one())


def test_a_session_is_strict_utc_blind_and_read_committed(hasty_mariadb: Database):
    assert ask(hasty_mariadb, "SELECT @@tx_isolation") == "READ-COMMITTED"
    assert "STRICT_ALL_TABLES" in str(ask(hasty_mariadb, "SELECT @@sql_mode"))
    assert ask(hasty_mariadb, "SELECT @@character_set_client") == "utf8mb4"
    assert ask(hasty_mariadb, "SELECT @@innodb_lock_wait_timeout") == 10
    assert ask(hasty_mariadb, "SELECT @@idle_transaction_timeout") == 60


@pytest.mark.parametrize("scheme", ["mariadb+pymysql", "mysql+pymysql"])
def test_both_names_of_the_dialect_reach_it(world: World, scheme: str):
    url = world.db.engine.url.set(drivername=scheme).render_as_string(hide_password=False)
    database = open_database(url)
    upgrade(database)
    assert check_schema(database) == ()
    other = World(database)
    assert other.finish(other.running(other.started()))
    world.check()
    database.dispose()


def test_ids_that_other_collations_take_for_equal_stay_apart(world: World):
    world.register()
    for name in ("abc", "ABC", "Abc"):
        assert world.ready(name).generation == 1
    assert {row.sandbox_id for row in world.rows(execs.metadata.tables["sandboxes"])} == {"abc", "ABC", "Abc"}
    route = world.sandboxes.get(SandboxKey("default", "abc"))
    world.queued(route, "run", "scope")
    world.queued(route, "RUN", "SCOPE")
    with pytest.raises(ScopeBusy):
        world.queued(route, "ran", "scope")


def test_output_is_the_bytes_that_were_written_in_rows_of_64_kib(world: World):
    record = world.running(world.started())
    chunks = [("stdout", EVERY_BYTE), ("stderr", b"'\\\"%s\x00\x1a"), ("stdout", b"\xff\xfe"), ("stdout", b"")]
    assert world.execs.append(record.key, "w1", 1, 2, chunks)
    assert world.execs.append(record.key, "w1", 1, 6, [("stdout", EVERY_BYTE)] * 20)
    assert [data for _, kind, data in world.events(record.key)[2:6] if kind == "stderr"] == [chunks[1][1]]
    assert world.exec("run").stdout == EVERY_BYTE + b"\xff\xfe" + EVERY_BYTE * 20


def test_the_largest_request_fits_and_keeps_its_text(world: World):
    script = "echo '\N{GRINNING FACE} \\ %s \" é'"
    wanted = request("run", stdin=b"'" * (1 << 20), labels={"who": "\N{GRINNING FACE}"}, env={"TEXT": script})
    record, _, _ = world.execs.admit(world.started().key, 1, wanted)
    assert world.execs.get(record.key).request == wanted


def test_many_events_are_one_statement(world: World):
    record = world.running(world.started())
    count = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Com_insert'"
    before = int(str(ask(world.db, count)))
    assert world.execs.append(record.key, "w1", 1, 2, [("stdout", b"x")] * 200)
    assert int(str(ask(world.db, count))) - before == 1
    assert len({event.at_us for event in world.execs.events(record.key, 2).events}) == 1


def test_a_row_that_is_found_and_stays_as_it_was_counts(world: World):
    def same(connection: Connection) -> int:
        connection.execute(text("INSERT INTO operations VALUES ('default', 'op', 7)"))
        return connection.execute(update(operations).values(seen_us=7)).rowcount

    assert world.db.write(same) == 1


def test_a_lease_is_renewed_while_a_sandbox_of_the_worker_is_locked(world: World):
    route = world.started()

    def renew_meanwhile(connection: Connection) -> bool:
        assert fetch(connection, route.key, lock=True) is not None
        return world.fleet.renew("w1", 1, 600, {})

    assert world.db.write(renew_meanwhile)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (f"SET GLOBAL max_allowed_packet = {MIN_PACKET_BYTES // 2}", "max_allowed_packet"),
        ("SET GLOBAL default_storage_engine = 'MyISAM'", "default_storage_engine"),
    ],
)
@pytest.mark.usefixtures("other_settings")
def test_a_server_that_would_break_a_promise_is_refused(
    mariadb: MariaDBServer, hasty_mariadb: Database, change: str, named: str
):
    mariadb.execute(change)
    database = open_database(hasty_mariadb.engine.url.render_as_string(hide_password=False))
    for start in (check_schema, upgrade):
        with pytest.raises(DatabaseUnsuitable, match=named) as refused:
            start(database)
        assert refused.value.exit_code == 2
    database.dispose()


@pytest.mark.usefixtures("other_settings")
def test_a_server_whose_defaults_differ_is_used_all_the_same(mariadb: MariaDBServer, hasty_mariadb: Database):
    mariadb.execute("SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'")
    database = open_database(hasty_mariadb.engine.url.render_as_string(hide_password=False))
    world = World(database)
    world.empty()
    record = world.running(world.started())
    assert world.finish(record, events=[("stdout", EVERY_BYTE)])
    assert world.exec("run").stdout == EVERY_BYTE
    database.dispose()
