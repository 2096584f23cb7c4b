"""The four moves of a command, in the form that suits the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from sandloom.execs import portable, postgres
from sandloom.execs.admission import Admission
from sandloom.execs.records import Outcome
from sandloom.ids import ExecKey


class Moves(Protocol):
    """``owned`` and ``values`` are what ``statements`` calls ``of_…``: the key and the owner, for a claim also the
    generation and the longest wait. Each is sent by ``Database.write_one``."""

    def admit(self, connection: Connection, admission: Admission) -> tuple[Any | None, bool]:
        """The row of ``statements.ADMISSION``, unless there is no such sandbox, and whether the command was admitted.

        If the row gives no reason against it, a rival was faster. IntegrityError: the same exec or scope was admitted
        meanwhile.
        """

    def claim(self, connection: Connection, key: ExecKey, values: Mapping[str, Any]) -> Any | None:
        """The row of the exec if it was moved to RUNNING, with the event that says so."""

    def append(
        self,
        connection: Connection,
        key: ExecKey,
        owned: Mapping[str, Any],
        last_seq: int,
        events: Sequence[tuple[str, bytes]],
    ) -> bool:
        """Add events after ``last_seq``; False unless the exec is the owner's and has come that far."""

    def finish(
        self,
        connection: Connection,
        key: ExecKey,
        owned: Mapping[str, Any],
        last_seq: int,
        events: Sequence[tuple[str, bytes]],
        outcome: Outcome,
    ) -> None:
        """The end with all that belongs to it. LostRace unless the exec is the owner's and has come to ``last_seq``."""


def moves_of(dialect: str) -> Moves:
    return postgres if dialect == "postgresql" else portable
