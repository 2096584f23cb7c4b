"""Which queue a public task goes to: the owner's when the sender knows it, else the one that every worker serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from sandloom.broker.queues import DISPATCH_QUEUE, owner_queue, queue, worker_queue
from sandloom.direct.tasks import ARGUMENTS
from sandloom.ids import is_worker_id

#: A message header with the queue that resolve told. It is part of a signature's options, so it survives a chain.
QUEUE_HEADER: Final = "sandloom_queue"
#: What applications consume unless they name another one, which a worker does not know.
CELERY_QUEUE: Final = "celery"
_WORKER_PREFIX: Final = worker_queue("")


def task_router(
    name: str,
    args: Any = None,
    kwargs: Any = None,
    options: Mapping[str, Any] | None = None,
    task: Any = None,
    **extra: Any,
) -> dict[str, Any] | None:
    """For Celery's ``task_routes``, in clients and in workers (they send what follows in a chain or chord).

    A worker passes on what is not for its own sandboxes, so every way leads to the owner.
    """
    if name not in ARGUMENTS:
        return None
    owner = ((options or {}).get("headers") or {}).get(QUEUE_HEADER)
    if is_owner_queue(owner):
        # On RabbitMQ: an error for the sender where the owner's queue is gone, instead of silence.
        return {"queue": owner_queue(owner), "mandatory": True}
    return {"queue": queue(DISPATCH_QUEUE)}


def foreign_router(
    name: str,
    args: Any = None,
    kwargs: Any = None,
    options: Mapping[str, Any] | None = None,
    task: Any = None,
    **extra: Any,
) -> dict[str, Any] | None:
    """For the workers' ``task_routes``: tasks of other applications, which follow one of ours in a chain or chord, go
    to Celery's default queue, which is theirs to declare."""
    if name.startswith(("sandloom.", "celery.")):
        return None
    return {"queue": queue(CELERY_QUEUE, declared=False)}


def is_owner_queue(name: object) -> TypeGuard[str]:
    """Whether ``name`` is the queue of a worker."""
    return isinstance(name, str) and name.startswith(_WORKER_PREFIX) and is_worker_id(name[len(_WORKER_PREFIX) :])
