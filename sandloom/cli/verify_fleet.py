"""What only several replicas and workers can show, and what happens when a worker stops."""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sandloom.cli.verify_report import Report, Unmet, demand, need, refused
from sandloom.errors import NoWorkerAvailable, SandboxBusy, SandloomError, StaleRoute, Unavailable, WorkerLost
from sandloom.ids import new_id
from sandloom.sdk import Client, Process, Result, Sandbox

SCOPE = "sandloom-verify-fleet"
#: Sandboxes that are placed: enough that another worker would be chosen if it could, and then more until each worker
#: of the profile has one.
SANDBOXES, MOST_SANDBOXES = 8, 128
STOP_SECONDS = 120
WORKER_ID = "{worker_id}"
NEEDS_REPLICAS = "needs --base-url for each of at least two replicas"
NEEDS_STOP = "needs --stop-worker-command and two live workers of the profile"

Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the deployment's own periods let things take; ``SLACK_SECONDS`` for a busy machine."""

    leave_seconds: float
    lost_seconds: float
    reclaimed_seconds: float

    SLACK_SECONDS = 30.0

    @classmethod
    def of(cls, worker: Mapping[str, Any]) -> Patience:
        """Of what ``/healthz`` says of a worker."""
        periods, reaper = worker["reclamation"], worker["orphan_reaper"]
        slack = cls.SLACK_SECONDS + 2 * periods["maintenance_interval_seconds"]
        leave = periods["heartbeat_ttl_seconds"] + slack
        return cls(
            leave, leave + reaper["running_grace_seconds"] + slack, leave + reaper["release_grace_seconds"] + slack
        )


class FleetChecks:
    """``clients``: one per replica. ``stop_command``: stops a worker; ``{worker_id}`` in it is replaced."""

    def __init__(self, clients: Sequence[Client], report: Report, stop_command: str | None) -> None:
        self._clients = [*clients]
        self._report = report
        self._stop_command = stop_command
        self._boxes: list[Sandbox] = []
        self._running: dict[str, Process] = {}

    def run(self) -> None:
        check = self._report.check
        try:
            if not check("placement", self.placement):
                return
            check("another profile", self.other_profile)
            check("replicas", self.replicas)
            if check("a worker stops", self.stop):
                check("others work on", self.others_work_on)
                if check("it leaves the view", self.leaves_the_view):
                    for name, made in self._when_it_is_gone().items():
                        check(name, made)
        finally:
            for box in self._boxes:
                _release(self._clients[0], box.id)

    def _when_it_is_gone(self) -> dict[str, Callable[[], str]]:
        return {
            "its command fails": self.command_fails,
            "new sandboxes go elsewhere": self.goes_elsewhere,
            "what it owned is reclaimed": self.reclaimed,
            "a superseded generation is refused": self.superseded,
        }

    # --- views ---

    def _workers(self) -> list[Row]:
        return list(self._clients[-1].workers())

    def _own(self) -> dict[str, Row]:
        """The live workers of the profile that this deployment places sandboxes in."""
        own = self._clients[0].health()["worker"]["profile_hash"]
        return {row["worker_id"]: row for row in self._workers() if row["profile_hash"] == own}

    def _place(self, client: Client) -> Sandbox:
        box = client.sandbox(f"verify-{new_id()}", scope=SCOPE, keep=True)
        self._boxes.append(box)
        return box

    def _on(self, worker_id: str) -> list[Sandbox]:
        return [box for box in self._boxes if box.route.worker_id == worker_id]

    # --- while all is well ---

    def placement(self) -> str:
        own = self._own()
        demand(bool(own), "no live worker has the profile that the deployment declares")
        while len(self._boxes) < SANDBOXES or (len(self._boxes) < MOST_SANDBOXES and not all(map(self._on, own))):
            self._place(self._clients[len(self._boxes) % len(self._clients)])
        counts = Counter(box.route.worker_id for box in self._boxes)
        demand(set(counts) >= set(own), f"of {', '.join(sorted(own))} only {', '.join(sorted(counts))} were chosen")
        return ", ".join(f"{count} on {worker}" for worker, count in sorted(counts.items()))

    def other_profile(self) -> str:
        own = self._own()
        odd = sorted(row["worker_id"] for row in self._workers() if row["worker_id"] not in own)
        need(bool(odd), "needs a live worker whose profile is another one")
        chosen = sorted({box.route.worker_id for box in self._boxes} & set(odd))
        demand(not chosen, f"chosen: {', '.join(chosen)}")
        return f"{', '.join(odd)}: listed live, not chosen for {len(self._boxes)} sandboxes"

    def replicas(self) -> str:
        """Every sandbox through every replica, its stream and its files too."""
        need(len({client.base_url for client in self._clients}) > 1, NEEDS_REPLICAS)
        for number, box in enumerate(self._boxes[: len(self._clients) + 1]):
            name = f"verify-{new_id()}"
            maker, *others = self._clients[number % len(self._clients) :] + self._clients[: number % len(self._clients)]
            maker.attach(box.id).start("echo shared; echo shared > shared", exec_id=name)
            for client in others:
                seen = client.attach(box.id)
                text = "".join(event.text for event in seen.process(name).events() if event.kind == "stdout")
                demand(text == "shared\n", f"{client.base_url} streams {text!r}")
                demand(seen.files.read("/workspace/shared") == b"shared\n", f"{client.base_url} reads another file")
                demand(seen.run("cat shared", timeout=30).stdout == "shared\n", f"{client.base_url} runs elsewhere")
        return f"{len(self._clients)} replicas serve the same sandboxes"

    # --- when a worker stops ---

    def stop(self) -> str:
        """Something runs on each worker while one is stopped."""
        own = self._own()
        self._patience = Patience.of(self._clients[0].health()["worker"])
        need(self._stop_command is not None and len(own) > 1, NEEDS_STOP)
        assert self._stop_command is not None
        for worker in own:
            self._running[worker] = self._on(worker)[0].start("echo begun; sleep 3600", timeout=3600, scope="long")
            next(event for event in self._running[worker].events() if event.kind == "stdout")
        self._waiting = Waiting(self._clients[-1], {worker: self._on(worker)[0] for worker in own})
        words = [word.replace(WORKER_ID, max(own)) for word in shlex.split(self._stop_command)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=STOP_SECONDS, check=False)
        self._stopped_at = time.monotonic()
        demand(done.returncode == 0, f"{words[0]} ended with {done.returncode}: {done.stderr or done.stdout}")
        return shlex.join(words)

    def others_work_on(self) -> str:
        """At once, while the lease of the stopped one still lives. Which it is will show only when it has lapsed."""
        served: set[str] = set()

        def enough() -> bool:
            silent = {worker: process for worker, process in self._running.items() if worker not in served}
            served.update(worker for worker, process in silent.items() if self._answers(worker, process))
            return len(served) >= len(self._running) - 1

        _until(enough, Patience.SLACK_SECONDS, "not all but one answer")
        return f"{', '.join(sorted(served))} answered"

    def _answers(self, worker: str, process: Process) -> bool:
        try:
            quick = self._clients[0].attach(self._on(worker)[0].id).start("echo on", timeout=30, scope="quick")
            return process.poll().status == "RUNNING" and quick.poll(wait_seconds=5).status == "SUCCEEDED"
        except SandloomError:
            return False

    def leaves_the_view(self) -> str:
        before = set(self._running)
        gone = _until(lambda: before - set(self._own()), self._patience.leave_seconds, "every worker is still listed")
        demand(len(gone) == 1, f"gone: {', '.join(sorted(gone))}")
        (self._stopped,) = gone
        return f"{self._stopped}, after {time.monotonic() - self._stopped_at:.0f} s"

    def command_fails(self) -> str:
        process, limit = self._running[self._stopped], self._patience.lost_seconds
        result = _until(lambda: _finished(process), limit, "it is still said to run")
        demand(result.status == "WORKER_LOST", result.status)
        answer = self._waiting.answer(self._stopped, Patience.SLACK_SECONDS)
        demand(answer == WorkerLost.code, f"the client that waited was answered {answer}")
        return f"{result.status}, and {answer} for who waited, after {time.monotonic() - self._stopped_at:.0f} s"

    def goes_elsewhere(self) -> str:
        for client in self._clients:
            box = self._place(client)
            demand(box.run("echo on", timeout=30).ok, f"nothing runs on {box.route.worker_id}")
            demand(box.route.worker_id != self._stopped, f"{box.id} was placed on it")
        others = [process.poll().status for worker, process in self._running.items() if worker != self._stopped]
        demand(set(others) == {"RUNNING"}, f"commands of others: {others}")
        return f"{len(self._clients)} placed, and the commands of the others still run"

    def reclaimed(self) -> str:
        """Nobody touches these; on a shared root another worker may own them instead."""
        owned = self._on(self._stopped)

        def settled() -> list[str]:
            routes = [self._clients[0].attach(box.id).route for box in owned]
            done = [route.status == "RELEASED" or route.worker_id != self._stopped for route in routes]
            return [f"{route.status} ({route.workspace})" for route in routes] if all(done) else []

        states = _until(settled, self._patience.reclaimed_seconds, "its sandboxes are still held")
        seen = ", ".join(sorted(set(states)))
        return f"{len(states)} sandboxes {seen}, after {time.monotonic() - self._stopped_at:.0f} s"

    def superseded(self) -> str:
        box = self._on(self._stopped)[0]
        before = box.generation
        again = _until(lambda: _resolved(self._clients[0], box), self._patience.SLACK_SECONDS, "it cannot be resolved")
        demand(again.generation > before and again.route.worker_id != self._stopped, again.route)
        demand(again.route.workspace in ("lost", "restored", "kept"), f"its workspace is {again.route.workspace}")
        refused(StaleRoute, lambda: box.files.mkdir("/workspace/late"))
        refused(StaleRoute, lambda: box.fenced("POST", "/exec", json={"exec_id": f"v-{new_id()}", "argv": ["true"]}))
        demand(again.run("echo on", timeout=30).ok, "nothing runs in it")
        return f"{before} is refused, {again.generation} is current on {again.route.worker_id}: {again.route.workspace}"


class Waiting:
    """Clients that wait in the foreground for a command on each worker; what they are answered in the end."""

    def __init__(self, client: Client, boxes: Mapping[str, Sandbox]) -> None:
        self._answers: dict[str, str] = {}
        self._ended = threading.Condition()
        for worker, box in boxes.items():
            waiter = client.attach(box.id)
            threading.Thread(target=self._wait, args=(worker, waiter), daemon=True).start()

    def _wait(self, worker: str, box: Sandbox) -> None:
        try:
            answer = box.run("sleep 3600", timeout=3600, scope="waited-for").status
        except SandloomError as error:
            answer = error.code
        except Exception as error:
            answer = type(error).__name__
        with self._ended:
            self._answers[worker] = answer
            self._ended.notify_all()

    def answer(self, worker: str, timeout_seconds: float) -> str:
        """The status or the error's code. Raises Unmet when the client still waits."""
        with self._ended:
            if not self._ended.wait_for(lambda: worker in self._answers, timeout_seconds):
                raise Unmet("the client that waited was not answered")
            return self._answers[worker]


def _finished(process: Process) -> Result | None:
    result = process.poll()
    return result if result.finished else None


def _resolved(client: Client, box: Sandbox) -> Sandbox | None:
    """The sandbox anew, or None while it cannot be had yet."""
    try:
        return client.sandbox(box.id, scope=SCOPE, keep=True)
    except (SandboxBusy, WorkerLost, Unavailable, NoWorkerAvailable):
        return None


def _until(look: Callable[[], T | None], timeout_seconds: float, otherwise: str) -> T:
    """The first answer that is something. Raises Unmet after the time."""
    deadline = time.monotonic() + timeout_seconds
    while not (found := look()):
        if time.monotonic() >= deadline:
            raise Unmet(f"{otherwise} after {timeout_seconds:.0f} s")
        time.sleep(0.5)
    return found


def _release(client: Client, sandbox_id: str) -> None:
    try:
        client.attach(sandbox_id).release()
    except SandloomError:
        return  # what a lost worker held, maintenance takes back
