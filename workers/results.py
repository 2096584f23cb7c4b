"""Results of direct tasks that end without their own task running: lost workers, queue timeouts, restarts."""

from __future__ import annotations

from celery import states

from sandloom.execs.records import Exec
from sandloom.telemetry import get_logger
from workers.answers import exec_answer
from workers.app import WorkerApp

log = get_logger("sandloom.workers.results")


class Results:
    """Whoever writes the terminal row completes the task's result, so that ``.get()`` never hangs."""

    def __init__(self, app: WorkerApp) -> None:
        self._app = app

    def complete(self, record: Exec) -> None:
        """Store the record as the task's result. Never raises: the record itself is safe."""
        if record.task_id is None:
            return
        try:
            self._app.backend.store_result(record.task_id, exec_answer(record), states.SUCCESS)
        except Exception:
            log.exception("a task's result could not be stored", task_id=record.task_id)
