"""Execs that clients send straight to the broker: first a row, then a turn in the lane, then the record as result."""

from __future__ import annotations

import threading

from celery.exceptions import Ignore
from celery.worker import state as celery_state

from sandloom.contracts.refusals import validated
from sandloom.errors import SandboxNotReady, SandloomError
from sandloom.execs.records import Exec
from sandloom.execs.requests import exec_request
from sandloom.execs.states import ExecStatus
from sandloom.ids import ExecKey, SandboxKey
from sandloom.telemetry import get_logger
from workers.answers import exec_answer
from workers.canvas import Canvas
from workers.context import NodeContext
from workers.pool import Delivery
from workers.reception import EXEC_TASK
from workers.tasks.execs import ExecArgs
from workers.tasks.requests import verify

log = get_logger("sandloom.workers.direct")

#: A waiter looks at the row this often, whatever the bus says.
REREAD_SECONDS = 2.0


class DirectExecs:
    """What was admitted, or refused, until its task runs. Thread-safe."""

    def __init__(self, node: NodeContext, canvas: Canvas) -> None:
        self._node = node
        self._canvas = canvas
        self._lock = threading.Lock()
        self._answers: dict[str, Exec | SandloomError] = {}
        self._numbers: dict[int, tuple[str, ExecKey]] = {}
        self._kept: set[str] = set()  # ids of tasks that others can go on from

    def admit(self, delivery: Delivery) -> ExecKey | None:
        """Make the row. None: refused, which the task will say. Raises for what is not a message of ours."""
        kwargs = delivery.kwargs()
        answer: Exec | SandloomError
        try:
            answer = self._admit(delivery.task_id, kwargs)
        except SandloomError as error:
            answer = error
        key = answer.key if isinstance(answer, Exec) else None
        kept = key is not None and self._keep(delivery)
        with self._lock:
            self._answers[delivery.task_id] = answer
            if kept:
                self._kept.add(delivery.task_id)
            if key is not None:
                self._numbers[delivery.number] = (delivery.task_id, key)
        return key

    def _admit(self, task_id: str, kwargs: dict[str, object]) -> Exec:
        envelope = verify(self._node.keys, EXEC_TASK, kwargs)
        args = validated(ExecArgs, envelope.args)
        key = SandboxKey(envelope.tenant_id, args.sandbox_id)
        request = exec_request(args)
        try:
            admitted, _, _ = self._node.execs.admit(key, args.generation, request, task_id)
        except SandboxNotReady:
            self._node.homes.connect(key, args.generation)
            admitted, _, _ = self._node.execs.admit(key, args.generation, request, task_id)
        if admitted.task_id not in (None, task_id):
            self._join(admitted.task_id, task_id)
        return admitted

    def _join(self, task_id: str, other_id: str) -> None:
        try:
            self._canvas.join(task_id, other_id)
        except Exception:
            log.exception("a task gets no result if its worker is lost", task_id=other_id)

    def _keep(self, delivery: Delivery) -> bool:
        try:
            return self._canvas.keep(delivery)
        except Exception:
            log.exception("what follows a task is lost if this worker is", task_id=delivery.task_id)
            return False

    def carry_out(self, task_id: str) -> dict[str, object]:
        """Run the command and return its record; a task that was refused raises why."""
        with self._lock:
            answer = self._answers.pop(task_id, None)
        try:
            if answer is None or isinstance(answer, SandloomError):
                raise answer or SandloomError()
            self._node.commands.run(answer.key, answer.generation)
            record = exec_answer(self._wait(answer.key))
            if not self._goes_on(task_id):
                raise Ignore
            return record
        finally:
            with self._lock:
                self._kept.discard(task_id)
                self._numbers = {n: held for n, held in self._numbers.items() if held[0] != task_id}

    def _goes_on(self, task_id: str) -> bool:
        """Whether what follows is Celery's to send; otherwise whoever ended the exec has done it."""
        try:
            return task_id not in self._kept or self._canvas.take(task_id) is not None
        except Exception:
            log.exception("nobody knows whether what follows a task was sent", task_id=task_id)
            return True

    def _wait(self, key: ExecKey) -> Exec:
        """The record once it is terminal; usually it is at once, unless the exec runs somewhere else.

        A row that still waits here is tried again: this job holds the exec's place in the lane.
        """
        with self._node.bus.watch(key) as watch:
            while True:
                record = self._node.execs.get(key, output=True)
                if record.terminal:
                    return record
                if record.status is ExecStatus.QUEUED and self._is_ours(record):
                    self._node.commands.run(key, record.generation)
                watch.wait(REREAD_SECONDS)

    def _is_ours(self, record: Exec) -> bool:
        identity = self._node.identity
        return (record.worker_id, record.worker_epoch) == (identity.worker_id, identity.epoch)

    def terminate(self, number: int) -> None:
        """End the command of one delivery."""
        with self._lock:
            held = self._numbers.get(number)
        if held is not None:
            self._cancel(held[1])

    def cancel_revoked(self) -> None:
        """End the commands whose tasks were revoked by id."""
        with self._lock:
            revoked = [key for task_id, key in self._numbers.values() if task_id in celery_state.revoked]
        for key in revoked:
            self._cancel(key)

    def _cancel(self, key: ExecKey) -> None:
        self._node.execs.cancel(key)
        self._node.commands.cancel(key)
