"""Waiting for the result of a task.

Celery's own ``AsyncResult.get`` on Redis is for one thread, and after the loss of its connection wants the application
to be restarted. Reading the result's key is safe from every thread and outlives a restart of the backend.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from celery import states

from sandloom.clock import monotonic_seconds
from sandloom.errors import WorkerLost

_FIRST_PAUSE_SECONDS: Final = 0.005
_LONGEST_PAUSE_SECONDS: Final = 0.25


def await_result(backend: Any, task_id: str, wait_seconds: float) -> Any:
    """The result, which is then removed from the backend; raises the exception that the task raised.

    ``WorkerLost`` when there is none within ``wait_seconds``; whatever the backend raises when it does not answer.
    """
    deadline_seconds = monotonic_seconds() + wait_seconds
    pause_seconds = _FIRST_PAUSE_SECONDS
    never = threading.Event()
    while True:
        found = backend.get_task_meta(task_id, cache=False)
        if found["status"] in states.READY_STATES:
            backend.forget(task_id)
            if found["status"] == states.SUCCESS:
                return found["result"]
            raise found["result"]
        left_seconds = deadline_seconds - monotonic_seconds()
        if left_seconds <= 0:
            raise WorkerLost
        never.wait(min(pause_seconds, left_seconds))
        pause_seconds = min(1.5 * pause_seconds, _LONGEST_PAUSE_SECONDS)
