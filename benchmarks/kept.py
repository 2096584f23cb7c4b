"""What keeping and sharing a workspace costs: snapshots to and from an S3 server, and the attaching of templates.

Snapshots are made by the code that suspends and resumes, against a private S3 server, whose work is part of what is
measured. The first floor is the programs that do the same with files of this disk, with zstd's level and one thread,
as the service has it; the second sends what they make to the same server. A restore is durable, so ``sync`` is part of
its floor.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.burst import Burst, run_burst
from benchmarks.files import MIB, Call, Line, Program
from benchmarks.service import Service
from sandloom.execution.workspace import WorkspaceRoot
from sandloom.ids import SandboxKey
from sandloom.objects import open_object_store
from sandloom.sdk import Client
from sandloom.settings import Settings
from tests.services.account import passable_directory, remove_tree
from tests.services.rclone import S3Server
from workers.snapshots import LEVEL, Snapshots

_KEY = SandboxKey("bench", "bench")
_UID = 61_500 if os.geteuid() == 0 else os.geteuid()
_BUCKET = "bench"
_FILES_IN_DIRECTORY = 32
#: Half of the bytes in files of 1 MiB, half in files of 64 KiB.
_FILE_BYTES = (MIB, MIB // 16)


@dataclass(slots=True)
class Work:
    """A target in this process."""

    name: str
    work: Callable[[], object]

    def burst(self, count: int, at_once: int) -> Burst:
        return run_burst(lambda _: self.work(), count, at_once, time.process_time)


@contextmanager
def snapshots(size_bytes: int) -> Iterator[list[Line]]:
    """Of a workspace of that size, of which a quarter cannot be packed."""
    directory = passable_directory("sandloom-bench-kept")
    server = S3Server(directory / "s3")
    try:
        server.start()
        yield _snapshot_lines(directory, server, size_bytes)
    finally:
        server.stop()
        remove_tree(directory)


def _snapshot_lines(directory: Path, server: S3Server, size_bytes: int) -> list[Line]:
    store = open_object_store(Settings.load(server.environment(_BUCKET)))
    assert store is not None
    root = WorkspaceRoot.open(directory / "here", rootless=os.geteuid() != 0)
    there = WorkspaceRoot.open(directory / "there", rootless=os.geteuid() != 0)
    tree = Path(root.create(_KEY, _UID, _UID).directories.workspace)
    _fill(tree, size_bytes)
    saving, restoring = Snapshots(store, root), Snapshots(store, there)
    kept = [saving.save(_KEY)]

    def save() -> None:
        before = kept[0]
        kept[:] = [saving.save(_KEY)]
        saving.discard(_KEY, before)

    def restore() -> None:
        restoring.restore(_KEY, kept[0], _UID, _UID)
        there.trash.join()

    packed, unpacked = directory / "packed", directory / "unpacked"
    pack = f"tar -C {tree} -cf - . | zstd -q -{LEVEL} -T1 -c"
    unpack = (
        f"rm -rf {unpacked}; mkdir {unpacked}; zstd -q -d -c {packed} | tar -C {unpacked} -xf -; sync -f {unpacked}"
    )
    copied = Program("tar | zstd", f"{pack} > {packed}")
    copied.burst(1, 1)
    sent = Program("tar | zstd | rclone", f"{pack} | {_rclone(directory, server)} rcat :s3:{_BUCKET}/floor")
    name = f"{size_bytes // MIB} MiB"
    saved = Work(f"snapshot of {name}", save)
    return [
        Line(saved, copied, 1),
        Line(saved, sent, 1),
        Line(Work(f"restore of {name}", restore), Program("zstd -d | tar -x", unpack), 1),
    ]


def _rclone(directory: Path, server: S3Server) -> str:
    """The client, with the keys out of everybody's sight."""
    script = directory / "rclone"
    script.touch(mode=0o700)
    script.write_text(
        "#!/bin/sh\n"
        f"export RCLONE_S3_ACCESS_KEY_ID={server.access_key} RCLONE_S3_SECRET_ACCESS_KEY={server.secret_key}\n"
        f"export RCLONE_S3_PROVIDER=Rclone RCLONE_S3_ENDPOINT={server.endpoint} RCLONE_CONFIG=\n"
        f'exec {server.binary} "$@"\n'
    )
    return str(script)


def _fill(tree: Path, size_bytes: int) -> None:
    source = random.Random(0)
    words = [bytes(source.choices(range(97, 123), k=source.randint(2, 10))) for _ in range(4000)]
    text = b" ".join(source.choices(words, k=200_000))
    for file_bytes in _FILE_BYTES:
        for number in range(size_bytes // len(_FILE_BYTES) // file_bytes):
            inner = tree / f"{file_bytes}-{number // _FILES_IN_DIRECTORY}"
            inner.mkdir(exist_ok=True)
            start = source.randrange(len(text) - file_bytes)
            random_bytes = source.randbytes(file_bytes // 4)
            (inner / f"file-{number}").write_bytes(random_bytes + text[start : start + file_bytes - len(random_bytes)])


@contextmanager
def attaching(service: Service) -> Iterator[list[Line]]:
    """Two templates take turns, so that each call changes what is mounted."""
    names = ("bench-one", "bench-two")
    with Client(service.url, service.token) as client:
        box = client.sandbox("bench-attach", scope="bench")
        for name in names:
            box.files.mkdir(f"/workspace/{name}")
            box.files.write(f"/workspace/{name}/tool", f"#!/bin/sh\necho {name}\n")
            box.publish_template(name, f"/workspace/{name}")
        turns = [0]

        def attach() -> None:
            turns[0] += 1
            name = names[turns[0] % 2]
            if [found.name for found in box.attach_templates(name)] != [name]:
                raise SystemExit("another template was attached than was asked for")

        try:
            yield [Line(Call("attach a cached template", attach, service), None, 20)]
        finally:
            for name in names:
                client.unpublish_template(name)
            box.release()
