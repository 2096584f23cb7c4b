"""What is published is what Celery itself would publish, minus everything that shows arguments."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from celery import Celery

from sandloom.broker.message import REDACTED, RING_TASK, ring_arguments, task_message
from sandloom.ids import ExecKey

KEY = ExecKey("default", "sandbox-1", "exec-1")


@pytest.fixture
def app() -> Celery:
    return Celery("test", broker="memory://", set_as_current=False)


def test_a_message_has_the_headers_properties_and_body_of_celery(app: Celery) -> None:
    kwargs = ring_arguments(KEY, 3)
    ours = task_message(RING_TASK, kwargs, task_id="an-id")
    theirs = app.amqp.as_task_v2(
        "an-id", RING_TASK, kwargs=kwargs, ignore_result=True, argsrepr=REDACTED, kwargsrepr=REDACTED
    )
    assert {**ours.headers, "origin": None} == {**theirs.headers, "origin": None}
    assert re.fullmatch(r"gen\d+@.+", str(ours.headers["origin"]))
    assert ours.properties == theirs.properties
    assert json.loads(ours.body) == json.loads(json.dumps(theirs.body))


def test_the_doorbell_names_the_exec_and_nothing_else() -> None:
    assert ring_arguments(KEY, 3) == {
        "v": 1,
        "tenant_id": "default",
        "sandbox_id": "sandbox-1",
        "exec_id": "exec-1",
        "generation": 3,
    }


def test_headers_show_no_argument() -> None:
    message = task_message("sandloom.exec", {"envelope": {"args": {"env": {"A": "hunter2"}}}}, task_id="an-id")
    assert "hunter2" not in json.dumps(message.headers)


@pytest.mark.parametrize("value", [float("nan"), b"bytes", object()])
def test_arguments_that_are_not_json_are_an_error(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        task_message("sandloom.exec", {"value": value}, task_id="an-id")
