from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.path_locks import PathLocks, Use
from sandloom.execution.paths import parse_path
from tests.unit.execution_files.people import kind_of


def refused(call: Callable[[], object]) -> bool:
    kind = kind_of(call)
    assert kind in (None, FaultKind.LOCKED)
    return kind is not None


def take(locks: PathLocks, use: Use, *paths: str) -> None:
    with locks.using(use, *(parse_path(path) for path in paths)):
        pass


def is_busy(locks: PathLocks) -> bool:
    return locks.busy


READ, WRITE, TREE = Use.READ, Use.WRITE, Use.TREE


@pytest.mark.parametrize(
    ("held", "held_path", "wanted", "wanted_path", "conflict"),
    [
        (READ, "/workspace/a", READ, "/workspace/a", False),
        (READ, "/workspace/a", WRITE, "/workspace/a", True),
        (WRITE, "/workspace/a", READ, "/workspace/a/", True),
        (WRITE, "/workspace/a", WRITE, "/workspace/a", True),
        (WRITE, "/workspace/a", WRITE, "/workspace/b", False),
        (WRITE, "/workspace/a", WRITE, "/workspace/ab", False),
        (WRITE, "/workspace/d", WRITE, "/workspace/d/a", False),
        (READ, "/workspace", WRITE, "/workspace/a", False),
        (TREE, "/workspace/d", READ, "/workspace/d/e/a", True),
        (TREE, "/workspace/d", WRITE, "/workspace/d", True),
        (TREE, "/workspace/d", READ, "/workspace/da", False),
        (TREE, "/workspace/d", READ, "/workspace", False),
        (READ, "/workspace/d/e/a", TREE, "/workspace/d", True),
        (TREE, "/workspace/d/e", TREE, "/workspace/d", True),
        (TREE, "/workspace/d", TREE, "/workspace/e", False),
        (READ, "/home/a", WRITE, "/workspace/a", False),
    ],
)
def test_conflicts(held: Use, held_path: str, wanted: Use, wanted_path: str, conflict: bool) -> None:
    locks = PathLocks()
    with locks.using(held, parse_path(held_path)):
        assert is_busy(locks)
        assert refused(lambda: take(locks, wanted, wanted_path)) == conflict
    assert not is_busy(locks)
    take(locks, wanted, wanted_path)


def test_all_paths_or_none() -> None:
    locks = PathLocks()
    with locks.using(READ, parse_path("/workspace/b")):
        assert refused(lambda: take(locks, TREE, "/workspace/a", "/workspace/b"))
        take(locks, WRITE, "/workspace/a")


def test_everything_excludes_every_call_and_is_excluded_by_it() -> None:
    locks = PathLocks()
    with locks.everything():
        assert refused(lambda: take(locks, READ, "/workspace/a"))
        assert refused(lambda: locks.everything().__enter__())
    with locks.using(READ, parse_path("/home")):
        assert refused(lambda: locks.everything().__enter__())
    with locks.everything():
        pass


def test_a_lifecycle_command_refuses_new_calls_and_lets_others_finish() -> None:
    locks = PathLocks()
    with locks.using(WRITE, parse_path("/workspace/a")):
        with locks.lifecycle():
            assert refused(lambda: take(locks, READ, "/workspace/b"))
            assert refused(lambda: locks.everything().__enter__())
        take(locks, READ, "/workspace/b")


def test_calls_hold_their_paths_while_they_stream(files: SandboxFiles) -> None:
    files.write("/workspace/a", b"old")

    def body() -> Iterator[bytes]:
        assert refused(lambda: files.read("/workspace/a"))
        assert refused(lambda: files.write("/workspace/a", b"other"))
        assert refused(lambda: files.delete("/workspace/a"))
        assert refused(lambda: files.move("/workspace/b", "/workspace/a"))
        files.write("/workspace/b", b"beside")
        yield b"new"

    files.write_stream("/workspace/a", body())
    with files.open_read("/workspace/a") as file:
        assert refused(lambda: files.write("/workspace/a", b""))
        assert files.read("/workspace/a") == file.read_all(10) == b"new"
        file.close()
        file.close()
        files.write("/workspace/a", b"")
    assert not files.locks.busy


def test_a_refused_call_holds_nothing(files: SandboxFiles) -> None:
    for call in (
        lambda: files.read("/workspace/x"),
        lambda: files.write("/workspace/x/y", b""),
        lambda: files.delete("/workspace/x"),
        lambda: files.move("/workspace/x", "/workspace/y"),
        lambda: files.listing("/workspace/x", 10),
        lambda: files.mkdir("/workspace/x/y"),
    ):
        with pytest.raises(FileFault):
            call()
    assert not files.locks.busy
