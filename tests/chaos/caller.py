"""One caller: a thread that has one sandbox at a time, does this and that with it, and knows what should be in it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandloom.errors import SandboxNotFound, SandboxSuspended, SandloomError, StaleGeneration, StaleRoute, WorkerLost
from sandloom.ids import ExecKey
from sandloom.sdk.process import Process
from sandloom.sdk.sandbox import Sandbox
from tests.chaos.book import BEATS, RAN, Book, Loss, Order
from tests.chaos.fleet import ChaosFleet, eventually

MANY = 6
PAUSE_SECONDS = 0.2
_WAIT_SECONDS = 20
#: Looks at a directory that is not there, before that counts.
_MISSES = 100
#: The caller made a mistake, or the service did.
_WRONG = (400, 422, 500)


class Over(Exception):
    """The sandbox is no longer this caller's."""


@dataclass
class Caller:
    """``operations``: each with its weight. ``template``: the name of one that is attached."""

    fleet: ChaosFleet
    book: Book
    name: str
    rng: random.Random
    stop: threading.Event
    operations: Mapping[str, tuple[Callable[[Caller], None], int]]
    box: Sandbox = field(init=False)
    running: list[Process] = field(default_factory=list)
    lasting: Process | None = None
    template: str | None = None
    released: bool = False
    _has_box: bool = False
    _generation: int = 0
    _disks: Mapping[str, Path] = field(default_factory=dict)
    _misses: int = 0
    _lives: int = 0
    _names: int = 0

    def work(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    self._begin()
                except (SandloomError, OSError) as error:
                    self._refused(error, PAUSE_SECONDS)
                    continue
                with suppress(Over):
                    self._live()
                    return
                self._has_box = False
                self._lives += 1
        except BaseException as error:
            self.book.fault(f"{self.name} ended: {error!r}")
            raise

    def _begin(self) -> None:
        """A sandbox of a new name, whose files are kept. Nothing runs in it before."""
        name, disks = f"{self.name}-{self._lives}", self.fleet.disks
        box = self.rng.choice(self.fleet.clients).sandbox(name, scope="chaos", keep=True)
        for file in (RAN, BEATS):
            box.files.write(f"/workspace/{file}", b"")
        self.move_to(box, disks)
        self.template = None

    def move_to(self, box: Sandbox, disks: Mapping[str, Path]) -> None:
        """Raises OSError when its files are not there any more. ``disks``: those of before it was made."""
        self.book.keep(self.fleet.workspace(box.route.worker_id, box.id), box.id)
        self.box, self._disks, self._generation = box, disks, box.generation
        self.running, self.lasting, self.released, self._has_box = [], None, False, True

    def _live(self) -> None:
        names, weights = list(self.operations), [weight for _, weight in self.operations.values()]
        while not self.stop.is_set():
            name = self.rng.choices(names, weights)[0]
            try:
                self.operations[name][0](self)
                self.book.called(name)
            except (StaleRoute, StaleGeneration, SandboxNotFound, SandboxSuspended):
                self.look_again()
            except WorkerLost:
                self.stop.wait(PAUSE_SECONDS)
            except SandloomError as error:
                self._refused(error, PAUSE_SECONDS / 4)
            if self.box.generation != self._generation:
                self.look_again()

    def _refused(self, error: Exception, pause_seconds: float) -> None:
        """An ordinary answer, unless it says that the caller or the service is wrong."""
        if isinstance(error, SandloomError):
            if error.status in _WRONG:
                self.book.fault(f"{self.name} was told {error.code}: {error.detail}")
            if error.status == 503:
                pause_seconds = PAUSE_SECONDS
        self.stop.wait(pause_seconds)
        if isinstance(error, SandloomError) and error.status == 503 and self._has_box:
            self._through_another_replica()

    def _through_another_replica(self) -> None:
        with suppress(SandloomError):
            # What is known of its generation stays: the next call finds out.
            box = self.rng.choice(self.fleet.clients).attach(self.box.id)
            box.route, self.box = self.box.route, box

    # --- what became of the files ---

    def look_again(self) -> None:
        """Under the next generation, if that has the files; its worker may be on its way back. Raises Over."""
        while not self.stop.is_set():
            try:
                if self._looked():
                    return
            except SandloomError as error:
                self._refused(error, PAUSE_SECONDS)
            self.stop.wait(PAUSE_SECONDS / 2)

    def last_look(self, timeout_seconds: float) -> None:
        """Once nothing strikes any more."""
        if not self._has_box:
            return
        try:
            eventually(self._looked, timeout_seconds)
        except AssertionError:
            self.book.fault(f"{self.box.id} does not come back")
        except Over:
            self._has_box = False

    def _looked(self) -> bool:
        """False: its files were on their way elsewhere."""
        disks = self.fleet.disks
        route = self.box.refresh()
        if route.generation != self._generation:
            self.book.found_files(route.workspace)
            if route.workspace in ("new", "lost"):
                self._gone()
                raise Over
        try:
            missing = self.book.keep(self.fleet.workspace(route.worker_id, self.box.id), self.box.id)
        except OSError as error:
            self._misses += 1
            if self._misses > _MISSES:
                self.book.fault(f"{self.box.id} is {route.workspace} on {route.worker_id}, but: {error}")
                raise Over from None
            return False
        if missing:
            self.book.fault(f"{self.box.id} is {route.workspace} on {route.worker_id}, but lacks {missing}")
        self._disks, self._generation, self._misses = disks, route.generation, 0
        return True

    def _gone(self) -> None:
        generations = range(self._generation, self.box.generation)
        if self.box.route.workspace == "lost":
            self.book.lost(Loss(self.box.id, generations, self._disks, self.fleet.disks))
        elif not self.released:
            self.book.fault(f"{self.box.id} is new after generations {generations}, and nobody released it")

    def keeps(self) -> bool:
        return self.book.keeps(self.fleet.workspace(self.box.route.worker_id, self.box.id), self.box.id)

    # --- commands ---

    def new_name(self) -> str:
        self._names += 1
        return f"{self.box.id}-{self._names}"

    def order(self, script: str, stdout: bytes | None = None, *, lasting: bool = False) -> tuple[str, str]:
        """The id of a new command, and its text: it begins with a note that it ran."""
        exec_id = self.new_name()
        self.book.order(Order(ExecKey("default", self.box.id, exec_id), stdout, lasting))
        note = f"echo {exec_id} $EPOCHREALTIME-$RANDOM >> {RAN}; "
        return exec_id, note + script.format(id=exec_id, beats=BEATS)

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

    def quiet(self) -> None:
        """Cancel what may still run, and wait for its end."""
        recent = [*self.running[-MANY:], *([] if self.lasting is None else [self.lasting])]
        for process in recent:
            process.cancel()
        for process in recent:
            self.ended(process)
        self.running, self.lasting = [], None
