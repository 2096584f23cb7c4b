"""SQLite's one writer: jobs that wait together are committed together, and none harms another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from sandloom.db import Database, open_database
from sandloom.errors import Unavailable


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[Database]:
    database = open_database(sqlite_url)
    yield database
    database.dispose()


def insert(connection: Connection, op_id: str) -> str:
    connection.execute(text("INSERT INTO operations VALUES ('default', :op, 0)"), {"op": op_id})
    return op_id


def operations(db: Database) -> set[str]:
    return db.read(lambda connection: set(connection.execute(text("SELECT op_id FROM operations")).scalars()))


def in_one_batch(db: Database, jobs: list[Any]) -> list[Future[Any]]:
    """Hand all jobs in, in order, while the writer is held by another one; they then wait together."""
    held, go = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        held.set()
        assert go.wait(30)

    waiting = db._writer._waiting  # type: ignore[union-attr]
    with ThreadPoolExecutor(len(jobs) + 1) as pool:
        first = pool.submit(db.write, hold)
        assert held.wait(30)
        futures = []
        for number, job in enumerate(jobs, 1):
            futures.append(pool.submit(db.write, job))
            while len(waiting) < number:
                pass
        go.set()
        first.result(30)
    return futures


class Stop(BaseException):
    """As SystemExit or KeyboardInterrupt would be."""


def fail(connection: Connection) -> None:
    insert(connection, "half")
    raise ValueError("no")


def stop(connection: Connection) -> None:
    insert(connection, "half")
    raise Stop


def test_a_job_that_fails_takes_nothing_with_it(sqlite: Database):
    futures = in_one_batch(
        sqlite, [lambda c: insert(c, "one"), fail, stop, lambda c: insert(c, "one"), lambda c: insert(c, "two")]
    )
    assert [type(f.exception(10)) for f in futures] == [type(None), ValueError, Stop, IntegrityError, type(None)]
    assert [futures[0].result(), futures[4].result()] == ["one", "two"]
    assert operations(sqlite) == {"one", "two"}
    assert sqlite.write(lambda c: insert(c, "three")) == "three"


def test_jobs_see_what_earlier_ones_of_their_batch_did(sqlite: Database):
    def count(connection: Connection) -> int:
        return connection.execute(text("SELECT count(*) FROM operations")).scalar_one()

    futures = in_one_batch(sqlite, [lambda c: insert(c, "one"), count, lambda c: insert(c, "two"), count])
    assert [f.result(10) for f in futures] == ["one", 1, "two", 2]


def test_no_answer_leaves_before_the_commit(sqlite: Database):
    """A reader that is woken by the answer finds the row."""
    seen: list[bool] = []

    def write(number: int) -> None:
        sqlite.write(lambda c: insert(c, f"op-{number}"))
        seen.append(f"op-{number}" in operations(sqlite))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))
    assert seen == [True] * 64


def test_a_full_disk_loses_no_answer_and_tears_no_job(sqlite: Database):
    def fill(connection: Connection) -> None:
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        connection.execute(text(f"PRAGMA max_page_count = {pages + 2}"))
        insert(connection, "before")
        connection.execute(text("INSERT INTO operations SELECT 'big', hex(randomblob(30000)), 0"))

    futures = in_one_batch(sqlite, [lambda c: insert(c, "one"), fill, lambda c: insert(c, "two")])
    outcome = [f.exception(10) for f in futures]
    assert outcome[1] is not None
    kept = {f.result() for f, problem in zip(futures, outcome, strict=True) if problem is None}
    assert operations(sqlite) == kept
    assert all(isinstance(problem, Unavailable) for problem in (outcome[0], outcome[2]) if problem)
    assert sqlite.write(lambda c: insert(c, "three")) == "three"


def test_a_transaction_inside_another_is_a_mistake_and_not_a_hang(sqlite: Database):
    with pytest.raises(RuntimeError):
        sqlite.write(lambda c: sqlite.write(lambda d: insert(d, "inner")))
    assert operations(sqlite) == set()


def test_after_the_end_nothing_hangs(sqlite_url: str):
    database = open_database(sqlite_url)
    database.write(lambda c: insert(c, "one"))
    database.dispose()
    with pytest.raises(Unavailable):
        database.write(lambda c: insert(c, "two"))
    database.dispose()


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path):
    database = open_database(f"sqlite:///{tmp_path}/none/sandloom.db")
    with pytest.raises(Unavailable):
        database.write(lambda c: insert(c, "one"))
    with pytest.raises(Unavailable):
        operations(database)
    database.dispose()
