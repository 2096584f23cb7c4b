from __future__ import annotations

import threading

import pytest

from sandloom.settings import Settings
from workers.app import create_celery
from workers.beat import Beat, PatientScheduler
from workers.config import maintenance_queues


def test_the_wish_to_stop_is_not_slept_through(monkeypatch: pytest.MonkeyPatch) -> None:
    ticked = threading.Event()

    def tick(scheduler: PatientScheduler) -> float:
        ticked.set()
        return 3600.0

    monkeypatch.setattr(PatientScheduler, "tick", tick)
    settings = Settings.load({"SANDBOX_BROKER_URL": "redis://127.0.0.1:1/0", "SANDBOX_SECRET_KEY": "s"})
    before = set(threading.enumerate())
    beat = Beat(create_celery(settings, maintenance_queues()))
    beat.start()
    assert ticked.wait(30)
    beat.stop()
    assert set(threading.enumerate()) <= before
