"""Snapshots that no sandbox names: the object store is about to get them, or to lose them.

Whoever makes one announces it first, and the transaction in which a sandbox's row comes to name it takes it back. So
whatever is in the store is named by a row, whoever is killed or cut off, and nothing that a sandbox names is removed.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import loose_snapshots
from sandloom.errors import ObjectStoreUnavailable
from sandloom.ids import SandboxKey

_l = loose_snapshots.c

#: Who makes a snapshot has so long. Longer than that, nobody keeps it any more.
ANNOUNCED_SECONDS = 7200
BATCH = 100


class LooseSnapshots:
    """``snapshot``: its name, or the first part of it, the token."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def announce(self, key: SandboxKey, token: str) -> None:
        """Before the object store gets it."""
        due_us = now_us() + ANNOUNCED_SECONDS * MICROSECONDS
        self._db.write(lambda connection: _add(connection, key, token, due_us))

    def doom(self, key: SandboxKey, snapshot: str) -> bool:
        """Nobody keeps it from now on: its objects may be removed. False: somebody has kept it, or it is removed."""
        return self._doom(_is(key, snapshot))

    def due(self) -> list[tuple[SandboxKey, str]]:
        """One batch of those that were left behind, doomed."""
        late = _l.due_us <= now_us()
        query = select(_l.tenant_id, _l.sandbox_id, _l.snapshot).where(late).order_by(_l.due_us).limit(BATCH)
        rows = self._db.read(lambda connection: connection.execute(query).all())
        found = [(SandboxKey(row.tenant_id, row.sandbox_id), row.snapshot) for row in rows]
        return [each for each in found if self._doom(and_(_is(*each), late))]

    def forget(self, key: SandboxKey, snapshot: str) -> None:
        """The object store has nothing of it any more."""
        statement = delete(loose_snapshots).where(_is(key, snapshot), _l.due_us == 0)
        self._db.write(lambda connection: connection.execute(statement).close())

    def _doom(self, which: ColumnElement[bool]) -> bool:
        statement = update(loose_snapshots).where(which).values(due_us=0)
        return self._db.write(lambda connection: connection.execute(statement).rowcount == 1)


def take_back(connection: Connection, key: SandboxKey, snapshot: str) -> None:
    """In the transaction in which a sandbox comes to name it. Raises ObjectStoreUnavailable when it is doomed."""
    kept = delete(loose_snapshots).where(_is(key, snapshot.partition(".")[0]), _l.due_us > 0)
    if connection.execute(kept).rowcount != 1:
        raise ObjectStoreUnavailable("The object store took too long to get the snapshot; repeat the call.")


def let_loose(connection: Connection, key: SandboxKey, snapshot: str) -> None:
    """In the transaction after which its sandbox names it no more."""
    _add(connection, key, snapshot, 0)


def _add(connection: Connection, key: SandboxKey, snapshot: str, due_us: int | ColumnElement[int]) -> None:
    connection.execute(insert(loose_snapshots).values(**key._asdict(), snapshot=snapshot, due_us=due_us))


def _is(key: SandboxKey, snapshot: str) -> ColumnElement[bool]:
    return and_(_l.tenant_id == key.tenant_id, _l.sandbox_id == key.sandbox_id, _l.snapshot == snapshot)
