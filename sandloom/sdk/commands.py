"""What a command is started with."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from sandloom.errors import WorkerLost
from sandloom.ids import new_id
from sandloom.sdk.results import Result

#: A list is an argv and goes through no shell; a text goes to ``sh -c``.
Command = str | Sequence[str]
Sink = Callable[[str], None]


class CommandOptions(TypedDict, total=False):
    """``timeout``: seconds, the deployment's default unless given. ``cwd``: /workspace unless given.

    ``scope``: commands of different scopes run side by side. ``exec_id``: makes the call idempotent over several
    clients. ``limits``: ``memory_bytes``, ``pids``, ``cpu_percent``.
    """

    timeout: int | None
    cwd: str
    env: Mapping[str, str] | None
    scope: str | None
    stdin: str | bytes | None
    labels: Mapping[str, str] | None
    exec_id: str | None
    limits: Mapping[str, int] | None


def exec_body(command: Command, **options: Unpack[CommandOptions]) -> dict[str, Any]:
    """The body of the call, without the generation."""
    stdin = options.get("stdin")
    wanted = {
        "exec_id": options.get("exec_id") or f"run-{new_id()}",
        "argv": ["sh", "-c", command] if isinstance(command, str) else list(command),
        "cwd": options.get("cwd"),
        "timeout_seconds": options.get("timeout"),
        "env": options.get("env"),
        "exec_scope": options.get("scope"),
        "labels": options.get("labels"),
        "limits": options.get("limits"),
        "stdin": stdin if isinstance(stdin, str) else None,
        "stdin_base64": base64.b64encode(stdin).decode("ascii") if isinstance(stdin, bytes) else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def not_lost(result: Result) -> Result:
    """Raises WorkerLost for a command that has no result because its worker is gone."""
    if result.status == "WORKER_LOST":
        raise WorkerLost(result.detail, exec_id=result.exec_id)
    return result
