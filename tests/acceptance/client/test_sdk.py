"""The Python client against a real service."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandloom import Client
from sandloom.cli.local_service import LocalService
from sandloom.errors import (
    DirectoryNotEmpty,
    ExecIdConflict,
    FileExists,
    FileMissing,
    SandboxNotFound,
    SandboxSuspended,
    ScopeMismatch,
    StaleRoute,
    SuspendBusy,
    Unauthorized,
)
from sandloom.sdk import Sandbox

pytestmark = pytest.mark.bwrap


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox() as opened:
        yield opened


def test_a_command_has_a_result(box: Sandbox) -> None:
    result = box.run(["sh", "-c", 'echo "$GREETING"; cat; exit 3'], env={"GREETING": "hi"}, stdin="typed")
    assert (result.exit_code, result.ok, result.stdout) == (3, False, "hi\ntyped")
    assert result.usage is not None
    assert box.run("echo $((6 * 7))").check().stdout == "42\n"


def test_it_sleeps_and_wakes(box: Sandbox) -> None:
    box.files.write("/workspace/kept", "still here")
    process = box.start(["sleep", "600"], scope="long")
    with pytest.raises(SuspendBusy):
        box.suspend()
    process.cancel()
    process.wait()
    assert (box.suspend(), box.route.status) == (True, "SUSPENDED")
    assert box.suspend() is False
    with pytest.raises(SandboxSuspended):
        box.run("true")
    generation = box.generation
    assert (box.resume(), box.resume(), box.generation, box.route.workspace) == (True, False, generation, "kept")
    assert box.run("cat kept").stdout == "still here"
    box.suspend()
    assert box.refresh().status == "READY"


def test_output_is_handed_over_as_it_comes(box: Sandbox) -> None:
    seen: list[str] = []
    first = threading.Event()

    def sink(text: str) -> None:
        seen.append(text)
        first.set()

    def answer() -> None:
        # The command waits for this file, so it can end only after its first line was seen.
        assert first.wait(120)
        box.files.write("/workspace/go", "")

    thread = threading.Thread(target=answer)
    thread.start()
    result = box.run("echo one; until [ -e go ]; do sleep 0.05; done; echo two", scope="talk", on_stdout=sink)
    thread.join()
    assert result.ok
    assert "".join(seen) == "one\ntwo\n"


def test_events_are_dense_from_one_and_can_be_read_again_from_anywhere(box: Sandbox) -> None:
    process = box.start("for i in 1 2 3; do echo $i; sleep 0.1; done")
    live = list(process.events())
    assert [event.seq for event in live] == list(range(1, len(live) + 1))
    assert [event.data["status"] for event in live if event.kind == "status"] == ["QUEUED", "RUNNING", "SUCCEEDED"]
    assert "".join(event.text for event in live if event.kind == "stdout") == "1\n2\n3\n"
    assert list(process.events()) == live
    assert list(process.events(after=2)) == live[2:]
    assert list(process.events(after=len(live))) == []


def test_scopes_run_side_by_side_and_a_cancel_ends_one(box: Sandbox) -> None:
    first, second = (box.start(["sleep", "600"], scope=name) for name in ("one", "two"))
    assert first.cancel()
    assert first.wait().status == "CANCELLED"
    assert not second.poll().finished
    assert second.cancel()
    assert second.wait().reason == "cancelled"
    assert not second.cancel()


def test_the_same_exec_id_is_the_same_run(box: Sandbox) -> None:
    for _ in range(2):
        assert box.run("echo x >> count", exec_id="once").ok
    assert box.files.read("/workspace/count") == b"x\n"
    with pytest.raises(ExecIdConflict):
        box.run("echo y >> count", exec_id="once")


def test_files_make_the_round(box: Sandbox, tmp_path: Path) -> None:
    box.files.mkdir("/workspace/a/b", parents=True)
    box.files.write("/workspace/a/b/text", "grüße")
    assert box.files.read_text("/workspace/a/b/text") == "grüße"
    big = bytes(range(256)) * 8192
    box.files.write("/workspace/big", big)
    assert box.files.read("/workspace/big") == big
    (tmp_path / "local").write_bytes(big)
    box.files.upload(tmp_path / "local", "/workspace/up")
    assert box.files.download("/workspace/up", tmp_path / "back") == len(big)
    assert (tmp_path / "back").read_bytes() == big
    box.files.move("/workspace/up", "/workspace/moved")
    with pytest.raises(FileExists):
        box.files.move("/workspace/moved", "/workspace/big")
    box.files.move("/workspace/moved", "/workspace/big", overwrite=True)
    assert sorted(entry.name for entry in box.files.list()) == ["a", "big"]
    with pytest.raises(DirectoryNotEmpty):
        box.files.delete("/workspace/a")
    box.files.delete("/workspace/a", recursive=True)
    with pytest.raises(FileMissing):
        box.files.read("/workspace/a/b/text")
    with pytest.raises(FileMissing):
        box.files.download("/workspace/nothing", tmp_path / "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "local"]


def test_a_released_sandbox_is_stale_and_is_not_brought_back(client: Client) -> None:
    with client.sandbox() as box:
        assert box.release() == "RELEASED"
        with pytest.raises(StaleRoute):
            box.run(["true"])
        assert client.attach(box.id).route.status == "RELEASED"
        assert box.release() == "RELEASED"


def test_a_generation_that_moved_on_is_not_followed_into_an_empty_directory(client: Client) -> None:
    with client.sandbox() as old:
        old.files.write("/workspace/here", "")
        old.release()
        with client.sandbox(old.id) as new:
            assert new.generation > old.generation
            assert new.route.workspace == "new"
            with pytest.raises(StaleRoute):
                old.files.mkdir("/workspace/d")
            assert new.files.list() == []


def test_what_a_client_may_not_do_has_its_own_exception(client: Client, service: LocalService, box: Sandbox) -> None:
    with pytest.raises(ScopeMismatch):
        client.sandbox(box.id, scope="another")
    with pytest.raises(SandboxNotFound):
        client.attach("never-made")
    with Client(service.url, "wrong") as stranger, pytest.raises(Unauthorized) as caught:
        stranger.sandboxes()
    assert "wrong" not in str(caught.value)


def test_sandboxes_are_listed_and_kept_when_asked(client: Client) -> None:
    with client.sandbox(scope="listed", keep=True) as box:
        pass
    try:
        assert [route.sandbox_id for route in client.sandboxes(scope="listed")] == [box.id]
        assert client.health()["status"] == "UP"
    finally:
        box.release()


def test_trees_go_in_and_out(box: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "project"
    (source / "src").mkdir(parents=True)
    (source / "src" / "main.py").write_text("print('found')\n")
    (source / "run").symlink_to("src/main.py")
    counts = box.files.upload_tree(source, "/workspace/project")
    assert (counts.files, counts.directories, counts.links) == (1, 1, 1)
    assert box.run(["python3", "project/run"]).stdout == "found\n"
    box.run("mkfifo project/fifo; ln -s /etc project/etc").check()
    done = box.files.download_tree("/workspace/project", tmp_path / "copy")
    assert (done.files, done.skipped) == (1, 2)
    assert (tmp_path / "copy" / "run").read_text() == "print('found')\n"
    assert not (tmp_path / "copy" / "etc").is_symlink()


def test_files_are_found_and_edited(box: Sandbox) -> None:
    box.files.mkdir("/workspace/src")
    box.files.write("/workspace/src/a.py", "x = 1\nprint(x)\n")
    assert [entry.path for entry in box.files.glob("**/*.py").entries] == ["/workspace/src/a.py"]
    assert [(match.line, match.text) for match in box.files.grep(r"\(x\)", glob="*.py").matches] == [(2, "print(x)")]
    assert box.files.replace("/workspace/src/a.py", "x", "y") == 2
    assert box.files.read_text("/workspace/src/a.py") == "y = 1\nprint(y)\n"
    box.files.write("/workspace/large", b"x" * 2_000_000, mode=0o750)
    assert box.files.stat("/workspace/large").mode == "0750"


def test_names_that_are_not_utf8(box: Sandbox, tmp_path: Path) -> None:
    box.run("printf content > $(printf 'a\\377')").check()
    [entry] = box.files.iterate()
    assert entry.path_base64 is not None
    path = base64.b64decode(entry.path_base64)
    assert box.files.read(path) == b"content"
    box.files.move(path, b"/workspace/\xfe")
    assert box.files.download(b"/workspace/\xfe", tmp_path / "copy") == 7
    box.files.delete(b"/workspace/\xfe")
    assert box.files.list() == []
