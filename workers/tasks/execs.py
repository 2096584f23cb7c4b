"""Commands: the direct exec, the cancel."""

from __future__ import annotations

from typing import Any

from sandloom.broker.envelope import FLEET_KEY_ID
from sandloom.contracts.rest import ExecBody, Name, OptionalGenerationBody
from sandloom.ids import ExecKey
from workers.reception import Lane
from workers.tasks.requests import Call, public


class ExecArgs(ExecBody):
    sandbox_id: Name


class CancelArgs(OptionalGenerationBody):
    sandbox_id: Name
    exec_id: Name


@public("sandloom.cancel", Lane.URGENT, CancelArgs)
def cancel(call: Call[CancelArgs]) -> dict[str, Any]:
    """The fleet marks the row before it sends this; anyone else's wish is marked here first."""
    key = ExecKey(*call.sandbox, call.args.exec_id)
    cancelled = True
    if call.envelope.key_id != FLEET_KEY_ID:
        cancelled = call.node.execs.cancel(key, call.args.generation).cancelled
    return {"cancelled": cancelled, "running_here": call.node.commands.cancel(key)}
