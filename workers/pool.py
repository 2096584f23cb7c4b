"""Celery's pool as a doorway: every message goes to the reception, which knows the lanes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool, apply_target
from celery.exceptions import Ignore
from kombu.serialization import loads

from workers.app import WorkerApp

_numbers = itertools.count(1)


class Delivery:
    """One task message that arrived, and what may be done with it."""

    def __init__(
        self, app: WorkerApp, run: Callable[..., Any], call: tuple[Any, ...], callbacks: dict[str, Any]
    ) -> None:
        self.number = next(_numbers)
        self.task, self.task_id, self.request, self._body, self._content_type, self._encoding = call
        self._app = app
        self._run = run
        self._callback = callbacks["callback"]
        self._accept_callback = callbacks["accept_callback"]
        #: Celery's own object for the message; the callbacks are its methods.
        self._owner = self._accept_callback.__self__

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return str(self.request["delivery_info"].get("routing_key"))

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self._owner.message.headers)

    def message(self) -> tuple[Any, dict[str, Any]]:
        """The body and what else ``kombu.Producer.publish`` needs to send it as it came."""
        message = self._owner.message
        kept = ("correlation_id", "reply_to", "priority")
        properties = {name: message.properties[name] for name in kept if message.properties.get(name) is not None}
        properties |= {"content_type": message.content_type, "content_encoding": message.content_encoding}
        return message.body, properties

    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments. Raises ValueError, or what kombu raises, for a body that is none of ours."""
        args, kwargs, _ = self._loaded()
        if args or not isinstance(kwargs, dict):
            raise ValueError("arguments must be given by name")
        return kwargs

    def canvas(self) -> dict[str, Any]:
        """What follows the task in its chain, chord or callbacks, and of which group it is a part."""
        _, _, follows = self._loaded()
        return {**follows, **{name: self.request.get(name) for name in ("group", "group_index", "root_id")}}

    def _loaded(self) -> Any:
        if not self._content_type:
            return self._body
        return loads(self._body, self._content_type, self._encoding, accept={"application/json"})

    def acknowledge(self) -> None:
        self._owner.acknowledge()

    def run(self) -> None:
        """Carry out the task on this thread, result and all."""
        call = (self.task, self.task_id, self.request, self._body, self._content_type, self._encoding)
        apply_target(
            self._run,
            call,
            {"app": self._app},
            callback=self._callback,
            accept_callback=self._accept_callback,
            pid=self.number,
        )

    def drop(self) -> None:
        """Done without being carried out; no result."""
        try:
            raise Ignore
        except Ignore:
            self._owner.on_failure(ExceptionInfo(), return_ok=True)


class LanePool(BasePool):
    """What the Celery worker believes its pool to be. It has no threads of its own."""

    signal_safe = False
    body_can_be_buffer = True
    task_join_will_block = False

    def on_apply(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None, accept_callback: Callable[..., Any] | None = None, **_: Any,
    ) -> None:  # fmt: skip
        assert isinstance(self.app, WorkerApp)
        callbacks = {"callback": callback, "accept_callback": accept_callback}
        self.app.reception.receive(Delivery(self.app, target, tuple(args), callbacks))

    def terminate_job(self, pid: int, signal: Any = None) -> None:
        """``revoke(terminate=True)``: end the command of that delivery."""
        assert isinstance(self.app, WorkerApp)
        self.app.reception.terminate(pid)

    def _get_info(self) -> dict[str, Any]:
        assert isinstance(self.app, WorkerApp)
        return {
            **super()._get_info(),  # type: ignore[misc]
            "processes": [os.getpid()],
            **self.app.reception.info(),
        }
