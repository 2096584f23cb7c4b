"""What a client sees when the embedded service is stopped and started again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandloom import Client
from sandloom.errors import StaleRoute, Unavailable
from sandloom.settings import read_token
from tests.services.account import free_port
from tests.services.process import ROOT, Process, base_environment

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]


@pytest.fixture
def up(data_dir: Path) -> Callable[[], Process]:
    """Starts the service, always over the same files and at the same address."""
    port = str(free_port())
    command = [sys.executable, "-m", "sandloom", "up", "--port", port, "--data-dir", str(data_dir / "data")]

    def start() -> Process:
        process = Process(command, log_path=data_dir / "log", env=base_environment(PYTHONPATH=str(ROOT)), cwd=data_dir)
        process.wait_for_output('"serving"|serving')
        return process

    start.port = port  # type: ignore[attr-defined]
    return start


def test_files_are_kept_and_the_client_follows_the_new_generation(up: Callable[[], Process], data_dir: Path) -> None:
    first = up()
    url = f"http://127.0.0.1:{up.port}"  # type: ignore[attr-defined]
    token = read_token(data_dir / "data") or ""
    with Client(url, token) as client:
        box = client.sandbox("kept-box")
        box.files.write("/workspace/note", "still here")
        before = box.generation
        assert first.stop() == 0
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
            box.files.read("/workspace/note")
        with up() as second:
            assert read_token(data_dir / "data") == token
            # Not safe to repeat, so the caller must know that the sandbox has a new owner epoch.
            with pytest.raises(StaleRoute):
                box.files.mkdir("/workspace/d")
            assert box.files.read("/workspace/note") == b"still here"
            assert (box.generation, box.route.workspace) == (before + 1, "kept")
            assert box.run(["cat", "note"]).stdout == "still here"
            assert box.release() == "RELEASED"
            assert second.running
    assert list((data_dir / "data" / "workspaces").rglob("note")) == []


def test_a_command_that_ends_with_the_service_is_on_record(up: Callable[[], Process], data_dir: Path) -> None:
    first = up()
    url = f"http://127.0.0.1:{up.port}"  # type: ignore[attr-defined]
    with Client(url, read_token(data_dir / "data") or "") as client:
        box = client.sandbox("with-command")
        process = box.start("echo begun; exec sleep 600", exec_id="long-one")
        assert next(event.text for event in process.events() if event.kind == "stdout") == "begun\n"
        first.kill()
        with up():
            result = process.wait()
            assert (result.status, result.stdout) == ("WORKER_LOST", "begun\n")
            events = list(process.events())
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert events[-1].data["status"] == "WORKER_LOST"
