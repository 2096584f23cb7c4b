"""Clients that do everything at once, and remember what they were promised."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sandloom.errors import SandloomError
from sandloom.files.channel import ByteChannel
from sandloom.ids import ExecKey, SandboxKey
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.worker_fleet import WorkerFleet

CALL_SECONDS = 3.0
_LARGE_BYTES = 3 << 20
_LIMITS = {"memory_bytes": 64 << 20, "pids": 40}
SCRIPTS = (
    "echo short",
    "head -c 200000 /dev/zero",
    "sleep 600",
    "setsid sleep 600 & sleep 600",
    "(setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' &) ; exit 0",
    "trap '' TERM HUP; (sleep 600 &) ; exec >&- 2>&-; sleep 600; sleep 600",
    "(sleep 600 & sleep 600) & kill -STOP $$",
    "for i in 1 2 3 4 5 6; do sleep 600 & done; mkfifo /tmp/f /dev/shm/f; cat /dev/shm/f",
    "while :; do date > /workspace/busy; mv /workspace/busy /home/busy; done",
    "mkdir -p /workspace/deep/a/b/c; touch /workspace/deep/a/b/c/$$; ls -R /workspace",
)


@dataclass
class Client:
    """One thread with one sandbox. ``promised``: path → digests of contents that the file may have, None: no file."""

    fleet: WorkerFleet
    channel: ByteChannel
    name: str
    rng: random.Random
    promised: dict[str, set[str | None]] = field(default_factory=dict)
    execs: list[ExecKey] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    _path_number: int = 0

    @property
    def key(self) -> SandboxKey:
        return SandboxKey("default", self.name)

    def work(self, stop: threading.Event) -> None:
        """Until ``stop``; a call that is refused or breaks off is an ordinary answer."""
        try:
            while not stop.is_set():
                with contextlib.suppress(SandloomError):
                    self._once(stop)
        except BaseException as error:
            self.faults.append(error)

    def _once(self, stop: threading.Event) -> None:
        route = self._ready()
        calls: list[tuple[Callable[[Route], object], int]] = [
            (self._command, 6), (self._write, 5), (self._write_raw, 3), (self._break_off, 2), (self._look, 3),
            (self._cancel, 2), (self._remove_tree, 1), (self._release, 1),
        ]  # fmt: skip
        while not stop.is_set():
            call = self.rng.choices([call for call, _ in calls], [weight for _, weight in calls])[0]
            call(route)
            self.done[call.__name__] += 1
            if call == self._release:
                return

    def _ready(self) -> Route:
        route = self.fleet.resolve(self.name)
        if route.status is SandboxStatus.ASSIGNED:
            self._call(route, "connect")
            route = self.fleet.sandboxes.get(route.key)
        return route

    def _call(self, route: Route, task: str, **arguments: object) -> dict[str, object]:
        whole = {"sandbox_id": self.name, "generation": route.generation, **arguments}
        return self.fleet.control.call(
            route.queue, f"sandloom.{task}", route.key.tenant_id, whole, timeout_seconds=CALL_SECONDS
        )

    def _command(self, route: Route) -> None:
        limits = _LIMITS if self.rng.random() < 0.5 else {}
        self.execs.append(self.fleet.shell(route, self.rng.choice(SCRIPTS), limits=limits, timeout_seconds=600))

    def _cancel(self, route: Route) -> None:
        if self.execs:
            self.fleet.exec_gateway.cancel(self.execs[self.rng.randrange(len(self.execs))], None)

    def _look(self, route: Route) -> None:
        self._call(route, "files.list", path="/workspace", limit=1000)

    def _write(self, route: Route) -> None:
        data = self.rng.randbytes(self.rng.randrange(20_000))
        with self._promise(data) as path:
            self._call(route, "files.write", path=path, content_base64=base64.b64encode(data).decode())

    def _write_raw(self, route: Route) -> None:
        data = self.rng.randbytes(_LARGE_BYTES)
        with self._promise(data) as path:
            self.channel.write(route, path, _pieces(data, len(data)), len(data), None, 1 << 30)

    def _break_off(self, route: Route) -> None:
        """Nothing of it may be seen."""
        data = self.rng.randbytes(_LARGE_BYTES)
        with contextlib.suppress(_BrokenOff):
            pieces = _pieces(data, self.rng.randrange(_LARGE_BYTES), _BrokenOff)
            self.channel.write(route, self._path(), pieces, len(data), None, 1 << 30)

    def _remove_tree(self, route: Route) -> None:
        with contextlib.suppress(SandloomError):
            self._call(route, "files.delete", path="/workspace/deep", recursive=True)

    def _release(self, route: Route) -> None:
        self.fleet.sandboxes.begin_release(route.key, route.generation, "test", "released")
        self.forget()
        self._call(route, "release")

    def forget(self) -> None:
        """The sandbox was released: its files are gone, its commands have ended."""
        self.promised.clear()
        self.execs.clear()

    def _path(self) -> str:
        return f"/workspace/file-{self._path_number % 8}-{self.rng.randrange(3)}"

    @contextlib.contextmanager
    def _promise(self, data: bytes) -> Iterator[str]:
        path = self._path()
        before, new = self.promised.get(path, {None}), digest(data)
        self.promised[path] = before | {new}
        try:
            yield path
        except BaseException:
            # It may still be done a little later, so nothing is promised of this path any more but the two.
            self._path_number += 1
            raise
        self.promised[path] = {new}


class _BrokenOff(Exception):
    pass


def _pieces(data: bytes, until: int, then: type[Exception] | None = None) -> Iterator[bytes]:
    for at in range(0, until, 1 << 16):
        yield data[at : min(at + (1 << 16), until)]
    if then is not None:
        raise then


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
