"""Commands: the direct exec, its record, the cancel."""

from __future__ import annotations

from typing import Any

from sandloom.broker.envelope import FLEET_KEY_ID
from sandloom.contracts.rest import Body, ExecBody, Name, OptionalGenerationBody
from sandloom.ids import ExecKey
from workers.answers import exec_answer
from workers.reception import Lane
from workers.tasks.requests import Call, public


class ExecArgs(ExecBody):
    sandbox_id: Name


class CancelArgs(OptionalGenerationBody):
    sandbox_id: Name
    exec_id: Name


class ExecStatusArgs(Body):
    sandbox_id: Name
    exec_id: Name


@public("sandloom.exec_status", Lane.URGENT, ExecStatusArgs)
def exec_status(call: Call[ExecStatusArgs]) -> dict[str, Any]:
    """Any worker may say how far a command is."""
    return exec_answer(call.node.execs.get(ExecKey(*call.sandbox, call.args.exec_id), output=True))


@public("sandloom.cancel", Lane.URGENT, CancelArgs)
def cancel(call: Call[CancelArgs]) -> dict[str, Any]:
    """The fleet marks the row before it sends this; anyone else's wish is marked here first."""
    key = ExecKey(*call.sandbox, call.args.exec_id)
    cancelled = True
    if call.envelope.key_id != FLEET_KEY_ID:
        cancelled = call.node.execs.cancel(key, call.args.generation).cancelled
    return {"cancelled": cancelled, "running_here": call.node.commands.cancel(key)}
