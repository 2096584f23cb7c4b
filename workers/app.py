"""The Celery application of a worker or of beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import Celery
from kombu import Queue

from sandloom.settings import Settings
from workers.config import celery_settings

if TYPE_CHECKING:
    from workers.reception import Reception


class WorkerApp(Celery):
    """Celery with the one thing that its pool needs to know."""

    reception: Reception


def create_celery(settings: Settings, queues: list[Queue]) -> WorkerApp:
    """An application that consumes ``queues``; its tasks are added by ``workers.tasks.register``."""
    app = WorkerApp("sandloom", set_as_current=False, loader="app", fixups=[])
    app.conf.update(celery_settings(settings, queues))

    return app


def task_options(**options: Any) -> dict[str, Any]:
    """What every task of ours has in common."""
    return {
        "Request": "workers.request:Request",
        "serializer": "json",
        "max_retries": 0,
        "typing": False,
        # Results hold output and file content: events and logs show nothing of them.
        "resultrepr_maxsize": 1,
        **options,
    }
