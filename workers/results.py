"""Results of direct tasks that end without their own task running: lost workers, queue timeouts, restarts; and of those
whose worker died between the end of the row and the result of the task."""

from __future__ import annotations

from sandloom.execs.records import Exec
from sandloom.telemetry import get_logger
from workers.answers import exec_answer
from workers.canvas import Canvas

log = get_logger("sandloom.workers.results")


class Results:
    """Whoever writes the terminal row completes the task's result, so that neither ``.get()`` hangs nor a chord."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas

    def complete(self, record: Exec) -> None:
        """Store the record as the result of each task that waits for it. Never raises: the record itself is safe."""
        if record.task_id is None:
            return
        try:
            for task_id in self._canvas.unanswered(record.task_id):
                self._canvas.complete(task_id, exec_answer(record))
        except Exception:
            log.exception("a task's result could not be stored", task_id=record.task_id)
