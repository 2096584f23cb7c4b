"""Callers that do everything at once through both replicas. ``OPERATIONS`` is the whole list: another kind of call is
another function with its weight."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sandloom.errors import (
    SandboxNotFound,
    SandboxSuspended,
    SandloomError,
    StaleGeneration,
    StaleRoute,
    Unavailable,
    WorkerLost,
)
from sandloom.ids import ExecKey
from sandloom.sdk.process import Process
from sandloom.sdk.sandbox import Sandbox
from tests.chaos.book import BEATS, RAN, Book, Order
from tests.chaos.fleet import ChaosFleet

MANY = 6
PAUSE_SECONDS = 0.2
#: A lasting command outlives a cut and the fence, and ends by its timeout where nobody ends it.
LASTING_SECONDS = 75
_WAIT_SECONDS = 20
#: The caller made a mistake, or the service did.
_WRONG = (400, 422, 500)
_BEAT = "echo {id} $EPOCHREALTIME >> {beats}; sleep 0.2"
_LASTING = (
    "trap '' TERM; (setsid bash -c 'while :; do " + _BEAT + "; done' &) ; while :; do " + _BEAT + "; done"
)  # fmt: skip


class Over(Exception):
    """The sandbox is no longer this caller's."""


@dataclass
class Caller:
    """One thread, with one sandbox at a time."""

    fleet: ChaosFleet
    book: Book
    name: str
    rng: random.Random
    stop: threading.Event
    box: Sandbox = field(init=False)
    running: list[Process] = field(default_factory=list)
    lasting: Process | None = None
    attached: bool = False
    _lives: int = 0
    _commands: int = 0

    def work(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    self._begin()
                    self._live()
                except Over:
                    self._lives += 1
                except (SandloomError, OSError) as error:
                    self._refused(error, PAUSE_SECONDS)
        except BaseException as error:
            self.book.fault(f"{self.name} ended: {error!r}")
            raise

    def _begin(self) -> None:
        """A sandbox of a new name, whose files are kept. Nothing runs in it before."""
        self.running, self.lasting, self.attached = [], None, False
        name = f"{self.name}-{self._lives}"
        self.box = self.rng.choice(self.fleet.clients).sandbox(name, scope="chaos", keep=True)
        for file in (RAN, BEATS):
            self.box.files.write(f"/workspace/{file}", b"")
        self.book.keep(self.fleet.workspaces(name), name)

    def _live(self) -> None:
        names, weights = list(OPERATIONS), [weight for _, weight in OPERATIONS.values()]
        while not self.stop.is_set():
            name = self.rng.choices(names, weights)[0]
            try:
                OPERATIONS[name][0](self)
                self.book.called(name)
            except (StaleRoute, StaleGeneration, SandboxNotFound, SandboxSuspended):
                self._again()
            except WorkerLost:
                self.stop.wait(PAUSE_SECONDS)
            except Unavailable:
                self.stop.wait(PAUSE_SECONDS)
                self._through_another_replica()
            except SandloomError as error:
                self._refused(error, PAUSE_SECONDS / 4)

    def _refused(self, error: Exception, pause_seconds: float) -> None:
        """An ordinary answer, unless it says that the caller or the service is wrong."""
        if isinstance(error, SandloomError) and error.status in _WRONG:
            self.book.fault(f"{self.name} was told {error.code}: {error.detail}")
        self.stop.wait(pause_seconds)

    def _again(self) -> None:
        """Under the next generation, if that has the files; its worker may be on its way back."""
        while not self.stop.is_set():
            try:
                if self.box.refresh().workspace in ("lost", "new") or not self.keeps():
                    raise Over
                return
            except SandloomError:
                self.stop.wait(PAUSE_SECONDS)
                self._through_another_replica()

    def _through_another_replica(self) -> None:
        with suppress(SandloomError):
            self.box = self.rng.choice(self.fleet.clients).attach(self.box.id)

    def keeps(self) -> bool:
        return self.book.keeps(self.fleet.workspaces(self.box.id), self.box.id)

    # --- commands ---

    def order(self, script: str, stdout: bytes | None = None, *, lasting: bool = False) -> tuple[str, str]:
        """The id of a new command, and its text: it begins with a note that it ran."""
        self._commands += 1
        exec_id = f"{self.box.id}-{self._commands}"
        self.book.order(Order(ExecKey("default", self.box.id, exec_id), stdout, lasting))
        return exec_id, f"echo {exec_id} >> {RAN}; " + script.format(id=exec_id, beats=BEATS)

    def start(self, script: str, stdout: bytes | None = None, *, timeout: int = 30, lasting: bool = False) -> Process:
        exec_id, text = self.order(script, stdout, lasting=lasting)
        command, scope = ["bash", "-c", text], f"scope-{exec_id}"
        process = self.box.start(command, exec_id=exec_id, scope=scope, timeout=timeout)
        self.book.accept(exec_id)
        if self.rng.random() < 0.1:  # as a caller that did not hear the answer
            self.box.start(command, exec_id=exec_id, scope=scope, timeout=timeout)
        self.running = [*self.running[-20:], process]
        return process

    def ended(self, process: Process) -> None:
        """Wait for it, within reason."""
        for _ in range(3):
            if self.stop.is_set() or process.poll(wait_seconds=_WAIT_SECONDS).finished:
                return


def foreground(caller: Caller) -> None:
    exec_id, text = caller.order("echo out-$((6 * 7))", b"out-42\n")
    # Without a scope it has the sandbox alone.
    scope = f"scope-{exec_id}" if caller.rng.random() < 0.8 else None
    try:
        result = caller.box.run(["bash", "-c", text], exec_id=exec_id, scope=scope, timeout=30)
    except WorkerLost as error:
        if error.extra.get("exec_id") == exec_id:  # an end like any other
            caller.book.accept(exec_id)
        raise
    caller.book.accept(exec_id)
    if result.ok and result.stdout != "out-42\n":
        caller.book.fault(f"{exec_id} answered {result.stdout!r}")


def several(caller: Caller) -> None:
    started = [caller.start("echo {id}", None) for _ in range(MANY)]
    for process in started:
        caller.ended(process)


def follow(caller: Caller) -> None:
    """Every event once, in order, and the end last."""
    process = caller.start("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done", b"1\n2\n3\n4\n5\n")
    seqs, ends = [], 0
    for event in process.events():
        seqs.append(event.seq)
        ends += event.kind == "status" and event.data["status"] not in ("QUEUED", "RUNNING")
    if seqs != list(range(1, len(seqs) + 1)) or ends != 1:
        caller.book.fault(f"{process.exec_id}: events {seqs}, {ends} of them an end")


def lasting(caller: Caller) -> None:
    if caller.lasting is None or caller.lasting.poll().finished:
        caller.lasting = caller.start(_LASTING, timeout=LASTING_SECONDS, lasting=True)


def overtime(caller: Caller) -> None:
    caller.ended(caller.start(_LASTING, timeout=1))


def cancel(caller: Caller) -> None:
    if caller.running:
        caller.rng.choice(caller.running).cancel()


def files(caller: Caller) -> None:
    path, data = (
        f"/workspace/file-{caller.rng.randrange(1 << 40):x}",
        caller.rng.randbytes(caller.rng.randrange(40_000)),
    )
    caller.box.files.write(path, data)
    if caller.box.files.read(path) != data:
        caller.book.fault(f"{caller.box.id}: {path} has other content than was written")
    caller.box.files.delete(path)


def sleep_and_wake(caller: Caller) -> None:
    for process in caller.running[-3:]:
        process.cancel()
    caller.box.suspend()
    if caller.rng.random() < 0.5:
        caller.stop.wait(PAUSE_SECONDS)
    caller.box.resume()
    if not caller.keeps():
        raise Over


def template(caller: Caller) -> None:
    if not caller.attached:
        caller.ended(caller.start("mkdir -p /envs/made; printf content > /envs/made/file"))
        caller.box.publish_template(caller.box.id, "/envs/made")
        caller.box.attach_templates(caller.box.id)
        caller.attached = True
    caller.ended(caller.start(f"cat /envs/{caller.box.id}/file", b"content"))


def release(caller: Caller) -> None:
    if caller.keeps():  # else its files must stay until somebody has counted
        caller.box.release()
    raise Over


OPERATIONS: dict[str, tuple[Callable[[Caller], None], int]] = {
    "foreground": (foreground, 12),
    "several": (several, 10),
    "follow": (follow, 3),
    "lasting": (lasting, 4),
    "overtime": (overtime, 1),
    "cancel": (cancel, 4),
    "files": (files, 4),
    "sleep and wake": (sleep_and_wake, 2),
    "template": (template, 1),
    "release": (release, 1),
}
