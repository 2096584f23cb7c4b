"""What file calls cost: small ones against the exec floor, the rest against the program that does the same by hand.

The programs do not wait for the disk, the service does before it answers a write.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.burst import Burst, Target, run_burst
from benchmarks.cpu import cpu_seconds
from benchmarks.service import Service
from sandloom.sdk import Client, Sandbox

KIB, MIB = 1 << 10, 1 << 20
ENTRIES = 10_000
_PER_DIRECTORY = 100
_FILE_BYTES = 1000


@dataclass(slots=True)
class Call:
    """A target: one file call, again and again."""

    name: str
    work: Callable[[], object]
    service: Service

    def burst(self, count: int, at_once: int) -> Burst:
        return run_burst(lambda _: self.work(), count, at_once, lambda: cpu_seconds(self.service.parts.values()))


@dataclass(slots=True)
class Program:
    """A floor: a command line of this machine, one after the other. A failure ends the run."""

    name: str
    command: str

    def burst(self, count: int, at_once: int) -> Burst:
        seconds = []
        began = time.perf_counter()
        for _ in range(count):
            started = time.perf_counter()
            subprocess.run(["sh", "-c", self.command], check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - started)
        return Burst(seconds, time.perf_counter() - began, 0.0)


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison. ``floor`` is None for the exec floor; ``count`` calls make a burst."""

    call: Target
    floor: Program | None
    count: int

    def against(self, exec_floor: Target) -> Target:
        return exec_floor if self.floor is None else self.floor


class FileCalls:
    """A sandbox and a directory of this machine that hold the same; a context manager."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._client = Client(service.url, service.token)
        self._directory = Path(tempfile.mkdtemp(prefix="sandloom-bench-files-"))

    def __enter__(self) -> list[Line]:
        box = self._client.sandbox("bench-files", scope="bench", keep=True)
        self._make_trees(box)
        return [*self._contents(box), *self._trees(box)]

    def __exit__(self, *_: object) -> None:
        self._client.attach("bench-files").release()
        self._client.close()
        shutil.rmtree(self._directory)

    def _make_trees(self, box: Sandbox) -> None:
        flat, tree = self._directory / "flat", self._directory / "tree"
        for number in range(ENTRIES):
            inner = tree / f"d{number // _PER_DIRECTORY}"
            inner.mkdir(parents=True, exist_ok=True)
            (inner / f"file-{number}").write_bytes(bytes([number % 251]) * _FILE_BYTES)
        flat.mkdir()
        for number in range(ENTRIES):
            (flat / f"entry-{number}").touch()
        for local in (flat, tree):
            box.files.upload_tree(local, f"/workspace/{local.name}")

    def _contents(self, box: Sandbox) -> list[Line]:
        return [*self._content(box, 4 * KIB, 20), *self._content(box, 16 * MIB, 2)]

    def _content(self, box: Sandbox, size_bytes: int, count: int) -> list[Line]:
        data = bytes(range(256)) * (size_bytes // 256)
        local, copied = self._directory / f"content-{size_bytes}", self._directory / "downloaded"
        local.write_bytes(data)
        path, name = f"/workspace/{local.name}", f"{size_bytes // KIB} KiB"
        box.files.write(path, data)
        copy = Program("cp", f"cp --reflink=never {local} {local}.copy")
        write = self._call(f"write {name}", lambda: box.files.write(path, data))
        read = self._call(f"read {name}", lambda: _same(box.files.read(path), data))
        download = self._call(f"download {name}", lambda: box.files.download(path, copied))
        compared = [Line(call, floor, count) for call in (write, read) for floor in (None, copy)]
        return [*compared, Line(download, copy, count)]

    def _trees(self, box: Sandbox) -> list[Line]:
        flat, tree = self._directory / "flat", self._directory / "tree"
        zstd = "zstd -q -c" if shutil.which("zstd") else "cat"
        packed = Program(f"tar | {zstd}", f"tar -C {tree} -cf - . | {zstd} > /dev/null")
        extracted = Program("tar -x", f"rm -rf {tree}.x; mkdir {tree}.x; tar -C {tree} -cf - . | tar -C {tree}.x -xf -")
        listing = self._call("list 10,000", lambda: _same(len(box.files.list("/workspace/flat")), ENTRIES))
        out = self._call("tar out 10,000", lambda: _drain(box))
        into = self._call("tar in 10,000", lambda: box.files.upload_tree(tree, "/workspace/in"))
        return [
            Line(listing, Program("ls -U", f"ls -U {flat}"), 2),
            Line(out, packed, 1),
            Line(into, extracted, 1),
        ]

    def _call(self, name: str, work: Callable[[], object]) -> Call:
        return Call(name, work, self._service)


def _drain(box: Sandbox) -> None:
    with box.files.archive("/workspace/tree") as pieces:
        _same(sum(map(len, pieces)) > ENTRIES * _FILE_BYTES, True)


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise SystemExit("a file call gave something else than was stored")
