"""Whether this node hears what is put into its own queue: sent there, and awaited, by the node itself.

A connection that came back says little: its consumer may be deaf. A ping goes the way that requests go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from sandloom.broker.publisher import KombuPublisher
from sandloom.clock import monotonic_seconds
from sandloom.errors import Unavailable
from sandloom.ids import new_id
from sandloom.telemetry import get_logger

log = get_logger("sandloom.workers.self_ping")

PING_TASK: Final = "sandloom.ping"
#: Between pings that are heard, and between those that are not.
CALM_SECONDS: Final = 10.0
EAGER_SECONDS: Final = 1.0
#: A ping waits behind whatever else is in the queue; one that went down with a broker is not waited for so long.
HEARD_WITHIN_SECONDS: Final = 10.0
EAGER_WITHIN_SECONDS: Final = 3.0
#: A broker that takes pings and delivers none for so long has lost its consumer; AMQP's heartbeat finds out sooner.
DEAF_SECONDS: Final = 60.0


class SelfPing:
    """``check`` looks at the servers after each (re)connection and returns warnings. ``on_deaf`` makes the consumer
    connect anew."""

    def __init__(
        self,
        publisher: KombuPublisher,
        queue: str,
        check: Callable[[], list[str]],
        on_deaf: Callable[[], None],
        *,
        calm_seconds: float = CALM_SECONDS,
        heard_within_seconds: float = HEARD_WITHIN_SECONDS,
        eager_within_seconds: float = EAGER_WITHIN_SECONDS,
        deaf_seconds: float = DEAF_SECONDS,
    ) -> None:
        self._publisher = publisher
        self._queue = queue
        self._check = check
        self._on_deaf = on_deaf
        self._calm_seconds = calm_seconds
        self._heard_within_seconds = heard_within_seconds
        self._eager_within_seconds = eager_within_seconds
        self._deaf_seconds = deaf_seconds
        # Any ping of this life proves it, also one that was given up.
        self._token = new_id()
        self._heard = threading.Event()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._lost = False
        self._deaf_since_seconds: float | None = None
        self._round_trip_ms: float | None = None
        self._warnings: list[str] = []
        self._thread = threading.Thread(target=self._serve, name="self-ping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._heard.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    @property
    def ready(self) -> bool:
        """Whether the last ping was heard; False before the first one was."""
        return self._ready.is_set()

    @property
    def lost(self) -> bool:
        """Whether the last ping was not heard; False before the first one had its time."""
        return self._lost

    def wait_ready(self, timeout_seconds: float) -> bool:
        return self._ready.wait(timeout_seconds)

    def heard(self, token: object) -> None:
        """A ping arrived; those of anybody else count for nothing."""
        if token == self._token:
            self._heard.set()

    def state(self) -> Mapping[str, Any]:
        return {"ready": self.ready, "round_trip_ms": self._round_trip_ms, "warnings": list(self._warnings)}

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn(self._ping())
            except Exception:
                log.exception("the node could not ping itself")
            self._stopping.wait(self._calm_seconds if self.ready else min(EAGER_SECONDS, self._calm_seconds))

    def _ping(self) -> bool | None:
        """Whether it was heard in time; None when the broker did not take it."""
        self._heard.clear()
        started_seconds = monotonic_seconds()
        try:
            self._publisher.send(self._queue, PING_TASK, {"token": self._token})
        except Unavailable:
            return None
        # The first one waits for the consumer, too.
        within_seconds = self._eager_within_seconds if self._lost else self._heard_within_seconds
        if not self._heard.wait(within_seconds):
            return False
        self._round_trip_ms = round((monotonic_seconds() - started_seconds) * 1000, 1)
        return True

    def _turn(self, heard: bool | None) -> None:
        if self._stopping.is_set():
            return
        self._lost = not heard
        if heard:
            self._deaf_since_seconds = None
            if not self.ready:
                self._warnings = self._check()
                self._ready.set()
                log.info("the node hears its queue", round_trip_ms=self._round_trip_ms)
            return
        if self.ready:
            self._ready.clear()
            log.warning("the node does not hear its queue", broker_takes_messages=heard is False)
        if heard is None:
            self._deaf_since_seconds = None
            return
        now_seconds = monotonic_seconds()
        if self._deaf_since_seconds is None:
            self._deaf_since_seconds = now_seconds
        if now_seconds - self._deaf_since_seconds >= self._deaf_seconds:
            log.error("the broker takes messages and delivers none; connecting anew")
            self._deaf_since_seconds = now_seconds
            self._on_deaf()
