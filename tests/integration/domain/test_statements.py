"""What PostgreSQL is really sent."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandloom.db import Database, open_database
from sandloom.execs.records import Exec
from tests.integration.domain.world import DONE, World
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.server

_STATEMENT = re.compile(r"LOG:  statement: (.*)")
#: What a statement does: its first word, or the name that it was prepared under, without the hash of its text.
_WORD = re.compile(r"(?:EXECUTE )?([A-Za-z_0-9]+?)(?:_[0-9a-f]{12}_\d+)?(?:\W|$)")


class ServerLog:
    """Everything that the server was sent while ``heard`` ran."""

    def __init__(self, postgres: PostgresServer, db: Database) -> None:
        self.db = db
        self._path = postgres.directory / "postgres.log"

    def heard(self, call: Callable[[], Any]) -> list[str]:
        """What each statement was, in order."""
        first, last = (f"SELECT '{uuid.uuid4().hex}'" for _ in range(2))
        self._mark(first)
        call()
        self._mark(last)
        found: list[str] = []
        while last not in found:
            found = _STATEMENT.findall(self._path.read_text())
        between = found[found.index(first) + 1 : found.index(last)]
        return [match[1] for statement in between if (match := _WORD.match(statement))]

    def _mark(self, statement: str) -> None:
        self.db.read(lambda connection: connection.exec_driver_sql(statement))


@pytest.fixture
def log(postgres: PostgresServer) -> Iterator[ServerLog]:
    url = postgres.new_database()
    postgres.execute(f"ALTER DATABASE \"{url.rsplit('/', 1)[1]}\" SET log_statement = 'all'")
    database = open_database(url)
    yield ServerLog(postgres, database)
    database.dispose()
    postgres.drop_database(url)


def test_no_call_sends_more_than_it_needs(log: ServerLog):
    world = World(log.db)
    route = world.started()
    warm = world.running(route, "warm")  # the first time, each statement is prepared
    world.queued(route, "warm")
    assert world.execs.append(warm.key, "w1", 1, 2, [])
    assert world.finish(warm)
    world.execs.open_for("w1", 1)
    world.fleet.renew("w1", 1, 600, {})
    world.sandboxes.touch(route.fence)
    world.resolve()
    record: list[Exec] = []

    def claim() -> None:
        claimed = world.claim(record[0])
        assert claimed is not None
        record[0] = claimed

    assert log.heard(lambda: record.append(world.queued(route))) == ["admit"]
    assert log.heard(lambda: world.queued(route)) == ["admit", "exec"]
    assert log.heard(claim) == ["claim"]
    events = [("stdout", b"x")] * 50
    assert log.heard(lambda: world.execs.append(record[0].key, "w1", 1, 2, events)) == ["append"]
    assert log.heard(lambda: world.execs.finish(record[0].key, "w1", 1, 52, events, DONE)) == ["finish"]
    assert log.heard(lambda: world.execs.get(record[0].key)) == ["exec"]
    assert log.heard(lambda: world.sandboxes.current(route.key, 1)) == ["route"]
    assert log.heard(lambda: world.execs.open_for("w1", 1)) == ["open_of_owner"]
    assert log.heard(lambda: world.fleet.renew("w1", 1, 600, {})) == ["BEGIN", "renew", "COMMIT"]
    assert log.heard(lambda: world.sandboxes.touch(route.fence)) == ["BEGIN", "touch", "route", "COMMIT"]
    assert log.heard(world.resolve) == ["BEGIN", "route_locked", "keep_alive", "COMMIT"]
