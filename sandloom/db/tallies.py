"""Numbers of the whole deployment, by name: they only grow."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, case, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from sandloom.db.engine import Database
from sandloom.db.tables import tallies

_t = tallies.c


class Tally(StrEnum):
    """Every name that there is. ``PRUNED_…``: the highest one that a row had which is gone; what is new begins after
    it, so that nothing which still names the old one can be taken for current. The others count."""

    PRUNED_EPOCH = "pruned_epoch"
    PRUNED_GENERATION = "pruned_generation"
    WORKERS_LOST = "workers_lost"
    EXECS_LOST = "execs_lost"
    SANDBOXES_LOST = "sandboxes_lost"
    QUEUE_TIMEOUTS = "queue_timeouts"
    IDLE_RELEASES = "idle_releases"
    EXPIRED_RELEASES = "expired_releases"
    RELEASES_REPEATED = "releases_repeated"
    SUSPENDS_REPEATED = "suspends_repeated"
    SLOTS_CORRECTED = "slots_corrected"
    RINGS_REPEATED = "rings_repeated"
    UIDS_FREED = "uids_freed"
    ROWS_PRUNED = "rows_pruned"
    STEPS_FAILED = "steps_failed"


MARKS = (Tally.PRUNED_EPOCH, Tally.PRUNED_GENERATION)
COUNTS = tuple(name for name in Tally if name not in MARKS)


def value_of(name: Tally) -> ColumnElement[int]:
    """As a scalar subquery; 0 where nothing was written yet."""
    return func.coalesce(select(_t.value).where(_t.name == literal(name.value)).scalar_subquery(), 0)


def add(db: Database, counts: Mapping[Tally, int]) -> None:
    """Those that are not 0, in one transaction."""
    wanted = sorted((name, number) for name, number in counts.items() if number)

    def move(connection: Connection) -> None:
        for name, number in wanted:
            statement = update(tallies).where(_t.name == name).values(value=_t.value + number)
            if connection.execute(statement).rowcount != 1:
                connection.execute(insert(tallies).values(name=name, value=number))

    if wanted:
        _write(db, move)


def raise_to(db: Database, name: Tally, value: int) -> None:
    """At least ``value`` from now on."""

    def move(connection: Connection) -> None:
        higher = case((_t.value < value, value), else_=_t.value)
        statement = update(tallies).where(_t.name == name).values(value=higher)
        if connection.execute(statement).rowcount != 1:
            connection.execute(insert(tallies).values(name=name, value=value))

    _write(db, move)


def counts(db: Database) -> dict[str, int]:
    """Every count, also those that are 0."""
    query = select(_t.name, _t.value)
    known = db.read(lambda connection: {row.name: row.value for row in connection.execute(query)})
    return {name.value: known.get(name.value, 0) for name in COUNTS}


def _write(db: Database, move: object) -> None:
    for last in (False, True):
        try:
            db.write(move)  # type: ignore[arg-type]
            return
        except IntegrityError:
            if last:
                raise  # somebody else wrote the first row, which cannot happen twice
