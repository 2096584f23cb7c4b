"""Results of direct tasks that end without their own task running: lost workers, queue timeouts, restarts; and of those
whose worker died between the end of the row and the result of the task."""

from __future__ import annotations

from sandloom.execs.service import Execs
from sandloom.ids import ExecKey
from sandloom.telemetry import get_logger
from workers.answers import exec_answer
from workers.canvas import Canvas

log = get_logger("sandloom.workers.results")


class Results:
    """Whoever writes the terminal row completes the task's result, so that neither ``.get()`` hangs nor a chord."""

    def __init__(self, canvas: Canvas, execs: Execs) -> None:
        self._canvas = canvas
        self._execs = execs

    def complete(self, key: ExecKey, task_id: str | None) -> None:
        """Store the record as the result of each task that waits for it. Never raises: the record itself is safe."""
        if task_id is None:
            return
        try:
            unanswered = self._canvas.unanswered(task_id)
            if unanswered:
                answer = exec_answer(self._execs.get(key, output=True))
                for each in unanswered:
                    self._canvas.complete(each, answer)
        except Exception:
            log.exception("a task's result could not be stored", task_id=task_id)
