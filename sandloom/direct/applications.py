"""The workers' tasks inside a Celery application of somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery, Task
from celery.canvas import Signature

from sandloom.broker.message import REDACTED
from sandloom.direct.routing import task_router
from sandloom.direct.tasks import ARGUMENTS, CALL_SECONDS, EXEC, SIGNATURE_VALID_SECONDS

#: What broker and result backend are reached by; the rest of an application's settings stays its own.
_SHARED = (
    "broker_url", "broker_use_ssl", "broker_transport_options", "result_backend", "redis_backend_use_ssl",
    "result_backend_transport_options",
)  # fmt: skip

_HIDDEN = {"argsrepr": REDACTED, "kwargsrepr": REDACTED}


def add_tasks(app: Celery, shared: Mapping[str, Any], seal: Callable[..., Signature[Any]]) -> None:
    """``shared``: the settings of a deployment's client. ``seal`` makes a signature of a task and its arguments."""
    app.conf.update({name: shared[name] for name in _SHARED})
    routes = app.conf.task_routes or ()
    app.conf.task_routes = (task_router, *(routes if isinstance(routes, list | tuple) else (routes,)))
    for name in ARGUMENTS:
        app.register_task(DirectTask(name, seal))


class DirectTask(Task):  # type: ignore[type-arg]
    """A task of the workers as their clients see it: its keyword arguments are sealed when it is sent."""

    # Arguments are checked when they are sealed.
    typing = False

    def __init__(self, name: str, seal: Callable[..., Signature[Any]]) -> None:
        self.name = name
        self._seal = seal

    def run(self, **_: Any) -> None:
        """Runs in Sandloom's workers alone."""
        raise NotImplementedError(f"{self.name} is carried out by Sandloom's workers: send it with delay")

    def apply_async(self, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        """As for every task; ``kwargs`` is what REST takes, and ``sandbox_id``."""
        return super().apply_async((), self._sealed(args, kwargs), *rest, **{**_HIDDEN, **options})

    def signature(self, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        """Sealed at once, and immutable: what follows in a chain is sent by a worker, which has no key for it."""
        return super().signature((), self._sealed(args, kwargs), *rest, **{**_HIDDEN, **options, "immutable": True})

    def _sealed(self, args: Any, kwargs: Any) -> Any:
        """``kwargs``, or the envelope that they are already."""
        if set(kwargs or ()) == {"envelope"}:
            return kwargs
        if args:
            raise TypeError(f"{self.name} takes arguments by name only")
        valid_seconds = SIGNATURE_VALID_SECONDS if self.name == EXEC else CALL_SECONDS
        return self._seal(self.name, kwargs or {}, valid_seconds=valid_seconds).kwargs
