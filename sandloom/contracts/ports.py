"""Ports that the domain and the servers use, and that adapters implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from sandloom.ids import ExecKey


class Publisher(Protocol):
    """Sends doorbells. A doorbell may be lost: the rows say what is to be done."""

    def ring(self, queue: str, key: ExecKey, generation: int) -> bool:
        """Tell the owner of ``queue`` that the exec waits; False: not sent. Never raises, never blocks for long."""
        ...


class WorkerControl(Protocol):
    """Asks a worker to do something now, on its control lane."""

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
        """The worker's answer. Raises the worker's SandloomError, WorkerLost without an answer in time, Unavailable
        when the broker does not take the message."""
        ...

    def post(self, queue: str, task: str, tenant_id: str, args: Mapping[str, Any], *, ttl_seconds: float) -> bool:
        """Send without waiting for an answer; False when it was not sent."""
        ...


class Registry(Protocol):
    """Hints of how busy workers are. It may know nothing, may be wrong, and never raises."""

    def report(self, worker_id: str, load: float) -> None:
        """0 idles; above 1 is more than busy."""
        ...

    def loads(self, worker_ids: Sequence[str]) -> Mapping[str, float]:
        """What is known of these; never blocks for long."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Head:
    """How far an exec's events go, as the bus says; only ever a reason to read the database."""

    seq: int
    terminal: bool


class Watch(Protocol):
    """One reader's interest in one exec."""

    def wait(self, timeout_seconds: float) -> Head | None:
        """The newest head since the last call; None on timeout or after ``wake``."""
        ...

    def wake(self) -> None:
        """End a wait from another thread."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Bus(Protocol):
    """Carries heads and replies between processes. It may lose messages and never raises."""

    def publish_head(self, key: ExecKey, seq: int, terminal: bool) -> None: ...

    def watch(self, key: ExecKey) -> Watch: ...

    def refresh(self, read: Callable[[Sequence[ExecKey]], Iterable[tuple[ExecKey, Head]]]) -> None:
        """Tell the watches of this process what ``read`` finds of their execs and they were not told yet."""
        ...

    def publish_reply(self, channel: str, body: Mapping[str, Any]) -> None: ...

    def on_reply(self, handler: Callable[[dict[str, Any]], None]) -> str:
        """Hand every reply for this process to ``handler``; returns the channel that others must reply to."""
        ...

    @property
    def connected(self) -> bool: ...

    def close(self) -> None: ...
