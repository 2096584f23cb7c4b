"""What a worker's earlier lives left on this machine, against what its database says should be there."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import select

from sandloom.db.tables import workers
from sandloom.execution import cgroup_base, machine
from sandloom.execution.sandbox_directory import decode_name
from sandloom.execution.spawner import proctree
from sandloom.sandboxes.records import Route
from sandloom.sandboxes.states import SandboxStatus
from tests.acceptance.worker_fleet import WorkerFleet
from tests.services.process import Process
from workers.translate import group_of

_LISTENING = "0A"
_OF_THE_WORKER = {"lock", "root_id", "uid_block", "worker_id"}
_OF_THE_ENGINE = {"etc", "identity", "notes", "seccomp.bpf"}


class Leftovers:
    """Looks at a worker in which nothing runs. Every method gives what should not be there."""

    def __init__(
        self, fleet: WorkerFleet, worker: Process, routes: list[Route], temporary: Path, worker_id: str = "w1"
    ) -> None:
        range_of = select(workers.c.uid_start, workers.c.uid_end).where(workers.c.worker_id == worker_id)
        first, last = fleet.services.db.read(lambda connection: connection.execute(range_of).one())
        self._fleet = fleet
        self._worker_id = worker_id
        self._root = fleet.root(worker_id)
        self._place = str(self._root.parent)
        self._children = set(proctree.children_of(worker.pid))
        self._own = {worker.pid, *self._children}
        self._uids = range(first, last + 1)
        self._routes = routes
        self._live = {route.key: route for route in routes if route.status is not SandboxStatus.RELEASED}
        self._temporary = temporary

    def found(self) -> list[str]:
        looks = (self.processes, self.mounts, self.groups, self.sockets, self.trees, self.elsewhere, self.rows)
        return [f"{look.__name__}: {thing}" for look in looks for thing in look()]

    def processes(self) -> Iterator[str]:
        commands = {pid: _command(pid) for pid in self._children}
        others = {pid: command for pid, command in commands.items() if "meter.server" not in command}
        if len(others) != 1 or "spawner.server" not in str(others) or len(commands) > 2:
            yield f"the worker's children are {commands}, not a spawner and perhaps a meter"
        for pid in _pids():
            if self._is_with_init(pid):
                continue
            if self._uids_of(pid):
                yield f"{pid} has uid {self._uids_of(pid)}: {_command(pid)}"
            elif pid not in (*self._own, os.getpid()) and (held := self._held_by(pid)):
                yield f"{pid} holds {held}: {_command(pid)}"

    def mounts(self) -> Iterator[str]:
        """Also in the namespace of any other process."""
        for pid in _pids():
            yield from (f"{pid}: {line}" for line in _lines(f"/proc/{pid}/mountinfo") if self._place in line)

    def groups(self) -> Iterator[str]:
        root_id = (self._root / ".sandloom/root_id").read_text().strip()
        name = hashlib.sha256(f"{root_id}/{self._worker_id}".encode()).hexdigest()[:16]
        expected = {group_of(key) for key in self._live}
        for base in cgroup_base.left_by(name):
            for directory, names, _ in os.walk(base):
                yield from (f"{directory}/{name}" for name in names if directory != base or name not in expected)

    def sockets(self) -> Iterator[str]:
        listening = {line.split()[9] for line in _lines("/proc/net/tcp") if line.split()[3] == _LISTENING}
        own = [inode for pid in self._own for inode in _socket_inodes(pid) if inode in listening]
        if len(own) != 1:
            yield f"the worker listens on {len(own)} sockets"
        yield from (line for line in _lines("/proc/net/unix") if self._place in line)

    def trees(self) -> Iterator[str]:
        """Everything below the root and beside it, but not what is in a sandbox."""
        expected = {".trash", ".sandloom", ".engine", "sandboxes"}
        yield from (str(path) for path in self._root.iterdir() if path.name not in expected)
        yield from map(str, (self._root / ".trash").iterdir())
        yield from (str(path) for path in (self._root / ".sandloom").iterdir() if path.name not in _OF_THE_WORKER)
        for path in (self._root / ".engine").iterdir():
            if path.name not in _OF_THE_ENGINE and path != machine.directory(path.parent):
                yield str(path)
        # A FIFO for each command that runs.
        yield from map(str, (self._root / ".engine/notes").iterdir())
        uids = {str(route.sandbox_uid) for route in self._live.values()}
        identities = self._root / ".engine/identity"
        names = os.listdir(identities) if identities.exists() else []
        # The one of the probe, which ran as the last uid of the range, stays.
        yield from (name for name in names if name.split("-")[0] not in {*uids, str(self._uids[-1])})
        yield from self._sandboxes()
        beside = {"tmp", self._root.name, f"{self._root.name}-templates"}
        for path in self._root.parent.iterdir():
            if path.name not in beside and path.suffix != ".log":
                yield str(path)

    def _sandboxes(self) -> Iterator[str]:
        for tenant in (self._root / "sandboxes").iterdir():
            below = list(tenant.iterdir())
            if not below:
                yield f"{tenant} is empty"
            for path in below:
                key = (decode_name("t", tenant.name) or "", decode_name("s", path.name) or "")
                if key not in self._live:
                    yield f"{path} belongs to no sandbox"
                staging = path / "staging"
                yield from map(str, staging.iterdir() if staging.exists() else ())
                yield from map(str, path.glob("workspace/**/*.part"))
        for key, route in self._live.items():
            if route.ready_us is not None and not Path(self._root, "sandboxes", f"t-{key[0]}", f"s-{key[1]}").exists():
                yield f"the directory of {key} is missing"

    def elsewhere(self) -> Iterator[str]:
        yield from map(str, self._temporary.iterdir())
        for place in ("/tmp", "/dev/shm", "/run/sandloom"):
            with os.scandir(place) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.stat(follow_symlinks=False).st_uid in self._uids:
                            yield entry.path
        for kind in ("shm", "sem", "msg"):
            for line in _lines(f"/proc/sysvipc/{kind}")[1:]:
                if {int(word) for word in line.split() if word.isdigit()} & set(self._uids):
                    yield f"{kind}: {line}"
        for line in _lines("/proc/key-users"):
            if int(line.split(":")[0]) in self._uids:
                yield f"keys: {line}"

    def rows(self) -> Iterator[str]:
        row = self._fleet.services.fleet.get(self._worker_id)
        assert row is not None
        if row.reserved != len(self._live):
            yield f"{row.reserved} slots are reserved for {len(self._live)} sandboxes"
        yield from (f"{route.key} is {route.status}" for route in self._routes if route.status == "RELEASING")
        yield from map(str, self._fleet.execs.open_for(self._worker_id, row.epoch))

    def _uids_of(self, pid: int) -> set[int]:
        line = next((line for line in _lines(f"/proc/{pid}/status") if line.startswith("Uid:")), "")
        return {uid for uid in map(int, line.split()[1:]) if uid in self._uids}

    def _is_with_init(self, pid: int) -> bool:
        """Ended, and handed to the machine's first process, which reaps when it likes."""
        process = proctree.read_process(pid)
        return process is None or (process.state in "ZX" and process.parent == 1)

    def _held_by(self, pid: int) -> list[str]:
        links = [f"/proc/{pid}/cwd", f"/proc/{pid}/root"]
        with contextlib.suppress(OSError):
            links += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
        return [target for link in links if (target := _target(link)).startswith(self._place)]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _lines(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return lines[1:] if path == "/proc/net/tcp" else lines


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _command(pid: int) -> str:
    return " ".join(_lines(f"/proc/{pid}/cmdline")).replace("\0", " ")[:200]


def _socket_inodes(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        targets = [_target(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
        return [target[len("socket:[") : -1] for target in targets if target.startswith("socket:[")]
    return []
