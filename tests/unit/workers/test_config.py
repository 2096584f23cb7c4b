"""Celery's settings: each with its reason, and right for each broker."""

from __future__ import annotations

import ast
import inspect
import ssl

import pytest

from sandloom.broker.queues import worker_queues
from sandloom.settings import Settings
from workers import config


def test_every_setting_has_its_reason_above_it() -> None:
    """Settings that follow each other without a comment between them share one."""
    source = inspect.getsource(config)
    lines = source.splitlines()
    without = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Dict):
            continue
        for key in node.value.keys:
            if isinstance(key, ast.Constant):
                above = key.lineno - 2
                while above >= node.lineno and not lines[above].strip().startswith("#"):
                    above -= 1
                if above < node.lineno or key.lineno - 1 - above > 6:
                    without.append(key.value)
    assert without == []


@pytest.mark.parametrize("url", ["redis://:pw@h:1/0", "rediss://h/0", "amqp://u:p@h//", "amqps://u:p@h//", "memory://"])
def test_settings_fit_the_broker(url: str) -> None:
    settings = Settings.load({"SANDBOX_BROKER_URL": url, "SANDBOX_BUS_URL": "redis://bus"})
    found = config.celery_settings(settings, worker_queues("w1", url))
    assert (found["broker_transport"] is not None) == ("redis" in url)
    assert (found["broker_transport_options"].get("global_keyprefix") == "sandloom:") == ("redis" in url)
    assert (found["broker_transport_options"].get("confirm_publish") is True) == ("amqp" in url)
    checked = found["broker_use_ssl"]
    assert bool(checked) == url.startswith(("rediss", "amqps"))
    assert not checked or ssl.CERT_REQUIRED in checked.values()
    assert found["result_backend"] == (url if "redis" in url else "redis://bus")
