"""Two workers as the database meets them, without processes: each has a spawner that knows nothing but its lease."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import event

from sandloom.db import Database
from sandloom.execs.records import Exec
from sandloom.ids import ExecKey
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.sandboxes.states import SandboxStatus
from tests.integration.domain.world import World

#: The default periods: a lease of 30 s, a fence 60 s after it.
POLICY = ReclaimPolicy(max_queued_seconds=300, idle_ttl_seconds=200)
START_SECONDS = 1_800_000_000.0
_JULIAN_EPOCH_DAYS = 2_440_587.5


class Clock:
    """Set by hand; the clock of the database, of the workers and of the reaper."""

    def __init__(self, db: Database) -> None:
        self.seconds = START_SECONDS
        self._db = db
        if db.dialect == "sqlite":
            event.listen(db.engine, "connect", self._give_to_sqlite)
            db.engine.dispose()
        else:
            self._make_in_postgres()

    def __call__(self) -> float:
        return self.seconds

    def set(self, seconds: float) -> None:
        self.seconds = seconds
        if self._db.dialect == "postgresql":
            self._db.write(lambda c: c.exec_driver_sql("UPDATE by_hand.clock SET at = to_timestamp(%s)", (seconds,)))

    def _give_to_sqlite(self, connection, _) -> None:
        # What the domain's statements call stands for SQLite's own function.
        connection.create_function("julianday", 1, lambda _: _JULIAN_EPOCH_DAYS + self.seconds / 86400)

    def _make_in_postgres(self) -> None:
        function = "CREATE FUNCTION by_hand.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql"
        for statement in (
            "CREATE SCHEMA by_hand",
            "CREATE TABLE by_hand.clock (at timestamptz NOT NULL)",
            f"INSERT INTO by_hand.clock VALUES (to_timestamp({self.seconds}))",
            f"{function} AS 'SELECT at FROM by_hand.clock'",
            f'ALTER DATABASE "{self._db.engine.url.database}" SET search_path = by_hand, public, pg_catalog',
        ):
            self._db.write(lambda connection, text=statement: connection.exec_driver_sql(text))  # type: ignore[misc]
        self._db.engine.dispose()


@dataclass
class Node:
    """One life of a worker. ``commands``: what its spawner runs, as the worker claimed it and last wrote to it."""

    worker_id: str
    epoch: int
    root_id: str
    fence_seconds: float
    connected: bool = True
    commands: dict[ExecKey, Exec] = field(default_factory=dict)

    def acknowledged(self, sent_seconds: float) -> None:
        self.fence_seconds = sent_seconds + POLICY.fence_after_seconds

    def tick(self, now_seconds: float) -> None:
        """The spawner does this alone, whatever has become of the worker."""
        if now_seconds >= self.fence_seconds:
            self.commands.clear()


def adopted(world: World, node: Node) -> list:
    """The sandboxes that this life owns."""
    return [
        route
        for route in world.sandboxes.list("default", None, None, None, 50, 0)[0]
        if (route.worker_id, route.worker_epoch) == (node.worker_id, node.epoch)
        and route.status is not SandboxStatus.RELEASED
    ]
