"""Public tasks: signed, checked, answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sandloom.broker.api_keys import is_key_id
from sandloom.broker.control import reply
from sandloom.broker.envelope import FLEET_KEY_ID, Envelope
from sandloom.contracts.refusals import validated
from sandloom.contracts.rest import Body
from sandloom.errors import DirectTasksOff, EnvelopeRefused, SandloomError
from sandloom.execution.file_faults import FileFault
from sandloom.ids import SandboxKey
from sandloom.telemetry import get_logger
from workers.context import Keys, NodeContext
from workers.counters import counters
from workers.reception import Lane
from workers.translate import file_error

log = get_logger("sandloom.workers.tasks")

A = TypeVar("A", bound=Body)


@dataclass(frozen=True, slots=True)
class Call(Generic[A]):
    """One verified request: ``args`` is what the task's model made of the envelope's arguments."""

    node: NodeContext
    envelope: Envelope
    args: A

    @property
    def tenant_id(self) -> str:
        return self.envelope.tenant_id

    @property
    def by(self) -> str:
        return self.envelope.key_id

    @property
    def sandbox(self) -> SandboxKey:
        return SandboxKey(self.tenant_id, self.args.sandbox_id)  # type: ignore[attr-defined]


Handler = Callable[[Call[Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PublicTask:
    name: str
    lane: Lane
    model: type[Body]
    handler: Handler


#: Every public task by its name.
PUBLIC: dict[str, PublicTask] = {}
#: Those that the fleet alone may ask for.
OF_FLEET: dict[str, PublicTask] = {}


def public(
    name: str, lane: Lane, model: type[Body], tasks: dict[str, PublicTask] = PUBLIC
) -> Callable[[Handler], Handler]:
    """Declare the decorated function as the task ``name`` of ``tasks``, whose arguments are ``model``."""

    def declare(handler: Handler) -> Handler:
        tasks[name] = PublicTask(name, lane, model, handler)
        return handler

    return declare


def verify(keys: Keys, task: str, kwargs: dict[str, Any]) -> Envelope:
    """The envelope of a message. Raises EnvelopeRefused, OperationExpired, DirectTasksOff; refusals are counted."""
    try:
        if set(kwargs) != {"envelope"}:
            raise EnvelopeRefused("the message does not carry an envelope and nothing else")
        envelope = keys.verifier.open(kwargs["envelope"], task=task)
        if task in OF_FLEET and envelope.key_id != FLEET_KEY_ID:
            raise EnvelopeRefused("the task is the fleet's own")
        if not keys.direct_tasks and envelope.key_id != FLEET_KEY_ID:
            raise DirectTasksOff
        if is_key_id(envelope.key_id):
            keys.of_tenants.demand_sender(envelope.key_id)
    except SandloomError as error:
        counters.add("messages_refused")
        log.warning("message refused", task=task, code=error.code, detail=error.detail)
        raise
    return envelope


def carry_out(node: NodeContext, task: PublicTask, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Verify, check, do; the API is answered over the bus, a direct client by the task's result."""
    envelope = verify(node.keys, task.name, kwargs)
    error: SandloomError | None = None
    result: dict[str, Any] | None = None
    try:
        result = task.handler(Call(node, envelope, validated(task.model, envelope.args)))
    except SandloomError as refusal:
        error = refusal
    except FileFault as fault:
        error = file_error(fault)
    except Exception:
        log.exception("task failed", task=task.name)
        error = SandloomError()
    if envelope.reply_to is not None:
        reply(node.bus, envelope, node.keys.fleet, result=result, error=error)
        return None
    if error is not None:
        raise error
    return result
