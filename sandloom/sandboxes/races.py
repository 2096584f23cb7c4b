"""Transactions that compete for slots and UIDs, repeated until they have won or nothing is left to win."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from sandloom.db.engine import Database
from sandloom.errors import NoWorkerAvailable, Unavailable

T = TypeVar("T")

#: After so many lost slots any slot of the best worker will do, however many others it was given since.
CHOOSY = 16
_MOST_SLOTS_LOST = 48
_MOST_ROWS_LOST = 6


class SlotTaken(Exception):
    """Others took the slot that was chosen.

    The transaction must end before another worker's row is asked for: it may hold the lock of this one, although it
    changed nothing, and two that ask for each other's wait until the server ends one of them.
    """


@dataclass
class Race:
    """What the earlier attempts have met. ``scatter_uids``: workers of one shared root count through the same UIDs, so
    the next one would be contended again."""

    slots_lost: int = 0
    rows_lost: int = 0

    @property
    def is_choosy(self) -> bool:
        return self.slots_lost < CHOOSY

    @property
    def scatter_uids(self) -> bool:
        return self.rows_lost > 0


def win(db: Database, attempt: Callable[[Connection, Race], T]) -> T:
    """The result of the first attempt that loses nothing. Raises what it raises, NoWorkerAvailable, Unavailable."""
    race = Race()
    while True:
        try:
            return db.write(lambda connection: attempt(connection, race))
        except SlotTaken:
            race.slots_lost += 1
            if race.slots_lost == _MOST_SLOTS_LOST:
                raise NoWorkerAvailable(retry_after_seconds=1) from None
        except IntegrityError:
            # Another made the row, or took the UID, first.
            race.rows_lost += 1
            if race.rows_lost == _MOST_ROWS_LOST:
                raise Unavailable("The sandbox is wanted by many callers at once; repeat the call.") from None
