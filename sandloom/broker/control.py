"""Asking a worker and hearing its answer."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from sandloom.broker.envelope import (
    FLEET_KEY_ID,
    REPLY_TASK,
    Envelope,
    SigningKey,
    Verifier,
    canonical,
    new_op_id,
    seal,
)
from sandloom.broker.publisher import KombuPublisher
from sandloom.contracts.ports import Bus
from sandloom.errors import (
    BodyTooLarge,
    EnvelopeRefused,
    OperationExpired,
    OperationSeen,
    SandloomError,
    Unavailable,
    ValidationFailed,
    WorkerLost,
)
from sandloom.streams.codec import MAX_REPLY_BYTES

log = logging.getLogger(__name__)

REPLY_TTL_SECONDS: Final = 60.0


class _Call:
    """One question on its way. Only a reply for the same tenant and task answers it."""

    __slots__ = ("answered", "reply", "task", "tenant_id")

    def __init__(self, tenant_id: str, task: str) -> None:
        self.tenant_id = tenant_id
        self.task = task
        self.answered = threading.Event()
        self.reply: dict[str, Any] = {}


class BusControl:
    """Implements ``sandloom.contracts.ports.WorkerControl``: the question goes through the broker, the answer comes
    over the bus. Thread-safe. ``ignored`` counts replies that nobody asked for or that were not genuine."""

    def __init__(self, publisher: KombuPublisher, bus: Bus, fleet_key: SigningKey) -> None:
        self._publisher = publisher
        self._bus = bus
        self._key = fleet_key
        self._verifier = Verifier({FLEET_KEY_ID: fleet_key})
        self._lock = threading.Lock()
        self._calls: dict[str, _Call] = {}
        self.ignored: Counter[str] = Counter()
        self._reply_channel = bus.on_reply(self._on_reply)

    @property
    def pending(self) -> int:
        """Calls that wait at the moment."""
        return len(self._calls)

    def call(
        self,
        queue: str,
        task: str,
        tenant_id: str,
        args: Mapping[str, Any],
        *,
        timeout_seconds: float,
        op_id: str | None = None,
    ) -> dict[str, Any]:
        """The worker's result. Raises the ``SandloomError`` that the worker answered, ``WorkerLost`` without an answer
        within the time, ``Unavailable`` when the broker does not take the question or no answer could come back.

        The worker does nothing after ``timeout_seconds``. ``op_id`` names the operation where a repetition must find
        the first one; two calls of one ``op_id`` at the same time are refused.
        """
        op_id = op_id or new_op_id()
        envelope = self._seal(task, tenant_id, args, timeout_seconds, op_id, self._reply_channel)
        if not self._bus.connected:
            raise Unavailable("the bus is not connected, so no answer could arrive")
        call = _Call(tenant_id, task)
        with self._lock:
            if op_id in self._calls:
                raise OperationSeen("this operation is being carried out at the moment")
            self._calls[op_id] = call
        try:
            self._publisher.send(queue, task, {"envelope": envelope})
            if not call.answered.wait(timeout_seconds):
                raise WorkerLost
        finally:
            with self._lock:
                del self._calls[op_id]
        return _result(call.reply)

    def post(self, queue: str, task: str, tenant_id: str, args: Mapping[str, Any], *, ttl_seconds: float) -> bool:
        """Send without waiting for an answer; the worker does nothing after ``ttl_seconds``. False: not sent."""
        try:
            envelope = self._seal(task, tenant_id, args, ttl_seconds, new_op_id(), None)
            self._publisher.send(queue, task, {"envelope": envelope})
        except Unavailable:
            return False
        return True

    def _seal(
        self,
        task: str,
        tenant_id: str,
        args: Mapping[str, Any],
        ttl_seconds: float,
        op_id: str,
        reply_to: str | None,
    ) -> dict[str, Any]:
        return seal(
            self._key,
            tenant_id=tenant_id,
            task=task,
            args=dict(args),
            deadline_seconds_from_now=ttl_seconds,
            op_id=op_id,
            reply_to=reply_to,
        )

    def _on_reply(self, body: dict[str, Any]) -> None:
        """Runs on the thread of the bus. What nobody waits for is not even verified."""
        op_id = body.get("op_id")
        call = self._calls.get(op_id) if isinstance(op_id, str) else None
        if call is None:
            self._ignore("unknown")
            return
        try:
            reply = self._verifier.open(body, task=REPLY_TASK)
        except EnvelopeRefused:
            self._ignore("forged")
            return
        except OperationExpired:
            self._ignore("expired")
            return
        if reply.tenant_id != call.tenant_id or reply.args.get("task") != call.task:
            self._ignore("mismatched")
            return
        call.reply = reply.args
        call.answered.set()

    def _ignore(self, why: str) -> None:
        with self._lock:
            self.ignored[why] += 1


def reply(
    bus: Bus,
    envelope: Envelope,
    fleet_key: SigningKey,
    *,
    result: Mapping[str, Any] | None = None,
    error: SandloomError | None = None,
) -> None:
    """Answer a request that wants an answer, with ``error`` or else ``result``. For the worker; never raises.

    Only the fleet's own requests are answered: a tenant's key must not get a worker to sign replies for others.
    """
    if envelope.reply_to is None or envelope.key_id != FLEET_KEY_ID:
        return
    content = {"problem": error.to_problem()} if error is not None else {"result": dict(result or {})}
    try:
        answer = _seal_reply(envelope, fleet_key, content)
    except ValidationFailed:
        log.error("the answer of %s is not JSON", envelope.task)
        answer = _seal_reply(envelope, fleet_key, {"problem": SandloomError().to_problem()})
    if len(canonical(answer)) > MAX_REPLY_BYTES:
        too_large = BodyTooLarge("the answer is too large for the bus; ask for less at once")
        answer = _seal_reply(envelope, fleet_key, {"problem": too_large.to_problem()})
    bus.publish_reply(envelope.reply_to, answer)


def _seal_reply(envelope: Envelope, fleet_key: SigningKey, content: dict[str, Any]) -> dict[str, Any]:
    return seal(
        fleet_key,
        tenant_id=envelope.tenant_id,
        task=REPLY_TASK,
        args={"task": envelope.task, **content},
        op_id=envelope.op_id,
        deadline_seconds_from_now=REPLY_TTL_SECONDS,
    )


def _result(reply_args: dict[str, Any]) -> dict[str, Any]:
    problem = reply_args.get("problem")
    if isinstance(problem, dict):
        raise SandloomError.from_problem(problem)
    result = reply_args.get("result")
    return result if isinstance(result, dict) else {}
