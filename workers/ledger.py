"""The events of one exec as its owner writes them: dense, in order, and sure about every commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from sandloom.errors import CommitUnknown, Unavailable
from sandloom.execs.records import Exec, Outcome
from sandloom.execs.service import Execs
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey
from sandloom.telemetry import get_logger
from workers.identity import Identity
from workers.output import Events

log = get_logger("sandloom.workers.ledger")
T = TypeVar("T")

FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0
#: How often a write whose commit is unknown is sent again at once, after the rows have said that it did not happen.
ATTEMPTS = 3


class Ledger:
    """Used by one thread at a time. ``given_up``: whether this node must no longer try (its fence has passed)."""

    def __init__(
        self, execs: Execs, identity: Identity, key: ExecKey, generation: int, given_up: Callable[[], bool]
    ) -> None:
        self._execs = execs
        self._identity = identity
        self._key = key
        self._generation = generation
        self._given_up = given_up
        self._pause = threading.Event()
        self.seq = 0

    def claim(self) -> Exec | None:
        """The exec, if this call made it RUNNING here. None: nothing to do."""
        record, in_doubt = None, False
        for _ in range(ATTEMPTS):
            try:
                record = self._execs.claim(self._key, self._generation, self._identity.worker_id, self._identity.epoch)
            except CommitUnknown:
                in_doubt = True
            if record is None and in_doubt:
                # Only this thread of this epoch claims this exec, so RUNNING here means that a claim happened.
                found = self._read()
                if found is not None and found.status is ExecStatus.QUEUED:
                    continue
                record = found if found is not None and self._is_running_here(found) else None
            break
        if record is not None:
            self.seq = record.last_seq
        return record

    def append(self, events: Events) -> bool:
        """Write a batch; False means fenced. Raises Unavailable when it was not written."""
        worker_id, epoch = self._identity.worker_id, self._identity.epoch
        target = self.seq + len(events)
        in_doubt = False
        for _ in range(ATTEMPTS):
            try:
                written = self._execs.append(self._key, worker_id, epoch, self.seq, events)
            except CommitUnknown:
                in_doubt = True
                written = False
            if not written and in_doubt:
                found = self._read()
                if found is None or (found.last_seq == self.seq and self._is_running_here(found)):
                    continue
                written = found.last_seq == target
            if written:
                self.seq = target
            return written
        raise Unavailable

    def finish(self, events: Events, outcome: Outcome) -> bool:
        """Write the end, however long the database is away; False when the exec was ended by somebody else."""
        target = self.seq + len(events) + 1
        doubts: list[CommitUnknown] = []

        def attempt() -> bool:
            worker_id, epoch = self._identity.worker_id, self._identity.epoch
            try:
                if self._execs.finish(self._key, worker_id, epoch, self.seq, events, outcome):
                    return True
            except CommitUnknown as doubt:
                doubts.append(doubt)
            if not doubts:
                return False
            found = self._execs.get(self._key)
            if not found.terminal:
                raise Unavailable
            return found.last_seq == target and found.status is outcome.status

        done = self.persist(attempt)
        if done:
            self.seq = target
        return bool(done)

    def _read(self) -> Exec | None:
        return self.persist(lambda: self._execs.get(self._key))

    def persist(self, call: Callable[[], T]) -> T | None:
        """Call again until the database answers; None when this node must give up."""
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                return call()
            except Unavailable:
                if self._given_up():
                    log.error("given up: the database did not answer", exec_id=self._key.exec_id)
                    return None
            self._pause.wait(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    def _is_running_here(self, record: Exec) -> bool:
        return (
            record.status is ExecStatus.RUNNING
            and record.generation == self._generation
            and record.worker_id == self._identity.worker_id
            and record.worker_epoch == self._identity.epoch
        )
