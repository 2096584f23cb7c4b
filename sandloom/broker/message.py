"""Celery's task message, protocol 2, without a Celery app: what a producer needs and nothing else."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandloom.ids import ExecKey

RING_TASK: Final = "sandloom.ring"
RING_VERSION: Final = 1

CONTENT_TYPE: Final = "application/json"
CONTENT_ENCODING: Final = "utf-8"
#: Durable, where the broker keeps messages at all.
DELIVERY_MODE: Final = 2
#: Not written to disk.
TRANSIENT: Final = 1

#: Arguments are shown to nobody: Flower, logs and events take these texts from the message's headers.
REDACTED: Final = "(redacted)"


class MessageRefused(Exception):
    """The broker works and took the message not: its queue is not there, or is full."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """What is published: headers and properties beside ``body``, the JSON of ``[args, kwargs, embed]``."""

    headers: dict[str, Any]
    properties: dict[str, Any]
    body: str


def task_message(task: str, kwargs: Mapping[str, Any], *, task_id: str, ignore_result: bool = True) -> TaskMessage:
    """A call of ``task`` with keyword arguments alone, whose result nobody keeps unless told otherwise.

    Raises ``TypeError`` or ``ValueError`` for arguments that are not JSON.
    """
    headers: dict[str, Any] = {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": REDACTED,
        "kwargsrepr": REDACTED,
        "origin": _origin(),
        "ignore_result": ignore_result,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([[], dict(kwargs), embed], allow_nan=False)
    return TaskMessage(headers, {"correlation_id": task_id, "reply_to": ""}, body)


def ring_arguments(key: ExecKey, generation: int) -> dict[str, Any]:
    """The keyword arguments of the doorbell ``sandloom.ring``."""
    return {
        "v": RING_VERSION,
        "tenant_id": key.tenant_id,
        "sandbox_id": key.sandbox_id,
        "exec_id": key.exec_id,
        "generation": generation,
    }


def is_doorbell(headers: object) -> bool:
    """Whether a message with these headers rings, and so may be lost without harm: its row is rung again."""
    return isinstance(headers, dict) and headers.get("task") == RING_TASK


def _origin() -> str:
    return f"gen{os.getpid()}@{socket.gethostname()}"
