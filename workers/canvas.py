"""What follows a direct exec in its chain, chord or callbacks, kept beside its result.

Whoever ends the exec, be it after its worker is gone, goes on with it, and nobody twice.
"""

from __future__ import annotations

import json
from typing import Any, Final

from celery import signature, states
from celery.app.task import Context

from workers.app import WorkerApp
from workers.config import RESULT_EXPIRES_SECONDS
from workers.pool import Delivery

_FOLLOWS: Final = ("chain", "chord", "callbacks")
#: A command may wait and run for more than a day.
_EXPIRES_SECONDS: Final = 2 * RESULT_EXPIRES_SECONDS


class Canvas:
    """Thread-safe. Methods raise what the result backend, which is Redis, and the broker do."""

    def __init__(self, app: WorkerApp) -> None:
        self._app = app

    def keep(self, delivery: Delivery) -> bool:
        """Whether anything follows; then it is kept."""
        follows = delivery.canvas()
        if not self._app.conf.result_backend or not any(follows.get(name) for name in _FOLLOWS):
            return False
        self._redis.set(self._key(delivery.task_id), json.dumps(follows), ex=_EXPIRES_SECONDS)
        return True

    def take(self, task_id: str) -> dict[str, Any] | None:
        """What was kept, for the first who asks; None: nothing was, or somebody has it."""
        with self._redis.pipeline(transaction=True) as pipe:
            found, _ = pipe.get(self._key(task_id)).delete(self._key(task_id)).execute()
        return None if found is None else dict(json.loads(found))

    def join(self, task_id: str, other_id: str) -> None:
        """``other_id`` waits for the same command as ``task_id``, to which the row belongs."""
        if self._app.conf.result_backend:
            key = self._key(task_id, "joined")
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.sadd(key, other_id).expire(key, _EXPIRES_SECONDS).execute()

    def unanswered(self, task_id: str) -> list[str]:
        """Of the task and those that joined it those without a result; none where there is nowhere to keep one."""
        if not self._app.conf.result_backend:
            return []
        joined = [found.decode() for found in self._redis.smembers(self._key(task_id, "joined"))]
        return [found for found in (task_id, *joined) if self._backend.get_state(found) not in states.READY_STATES]

    def complete(self, task_id: str, result: dict[str, Any]) -> None:
        """What Celery does at the end of a task: send what follows, store the result, count its part of a chord."""
        follows = self.take(task_id) or {}
        lineage: dict[str, Any] = {"parent_id": task_id, "root_id": follows.get("root_id")}
        for callback in follows.get("callbacks") or ():
            signature(callback, app=self._app).apply_async((result,), **lineage)
        if chain := follows.get("chain"):
            signature(chain[-1], app=self._app).apply_async((result,), chain=chain[:-1], **lineage)
        request = Context(id=task_id, **follows)
        self._backend.mark_as_done(task_id, result, request, state=states.SUCCESS)

    @property
    def _backend(self) -> Any:
        return self._app.backend

    @property
    def _redis(self) -> Any:
        return self._backend.client

    def _key(self, task_id: str, kind: str = "canvas") -> Any:
        return self._backend.get_key_for_task(task_id, f".{kind}")
