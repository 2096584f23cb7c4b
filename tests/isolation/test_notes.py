"""Notes from inside: easy to write, of that command alone, and nothing a hostile writer does reaches further."""

from __future__ import annotations

import itertools
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandloom.execution.notes import MAX_LINES, MAX_TOTAL_BYTES, Notes
from sandloom.execution.runner import Handle
from sandloom.execution.spec import Reason, SpawnerUnavailable
from tests.isolation.kit import Sandbox

pytestmark = pytest.mark.bwrap

# As docs/traces.md tells it.
FROM_SHELL = """printf '%s\\n' '{"step": "tests", "passed": 12}' >> "$SANDLOOM_TRACE" """
FROM_PYTHON = """
import json, os
with open(os.environ["SANDLOOM_TRACE"], "a") as trace:
    for done in range(3):
        print(json.dumps({"done": done}), file=trace, flush=True)
"""


class Command:
    """One that runs in the background, with what it wrote by kind."""

    def __init__(self, sandbox: Sandbox, *argv: str, **changes: Any) -> None:
        self.found: dict[str, list[bytes]] = {"stdout": [], "stderr": [], "note": []}
        self._changed = threading.Condition()
        spec = replace(sandbox.template, argv=argv, **changes)
        self.handle: Handle = sandbox.runner.start(spec, self._sink)
        self._thread = threading.Thread(target=self.handle.wait, daemon=True)
        self._thread.start()

    def _sink(self, kind: str, data: bytes) -> None:
        with self._changed:
            self.found[kind].append(data)
            self._changed.notify_all()

    def see(self, kind: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.found[kind]), 120)

    def end(self) -> list[Any]:
        """Its notes."""
        self._thread.join(120)
        assert not self._thread.is_alive()
        return [json.loads(data) for data in self.found["note"]]


def shell(sandbox: Sandbox, script: str, **changes: Any) -> Command:
    return Command(sandbox, "/bin/sh", "-c", script, **changes)


@pytest.fixture
def before(sandbox: Sandbox) -> set[str]:
    """FIFOs of commands of other tests that nobody waited for."""
    return left(sandbox)


def left(sandbox: Sandbox) -> set[str]:
    return set(os.listdir(sandbox.template.plan.notes_dir))


def test_notes_from_a_shell_and_from_python_arrive_as_written(sandbox, before):
    assert shell(sandbox, FROM_SHELL).end() == [{"note": {"step": "tests", "passed": 12}}]
    command = Command(sandbox, "python3", "-c", FROM_PYTHON)
    assert command.end() == [{"note": {"done": number}} for number in range(3)]
    assert command.handle.wait().exit_code == 0
    assert left(sandbox) <= before


def test_a_note_arrives_while_the_command_runs(sandbox):
    command = shell(sandbox, "echo 1 > $SANDLOOM_TRACE; exec sleep 600")
    command.see("note")
    command.handle.cancel()
    assert command.end() == [{"note": 1}]


def test_a_pause_that_ends_unseen_is_not_for_ever(sandbox, monkeypatch):
    pauses = itertools.chain([0.01], itertools.repeat(0.0))
    monkeypatch.setattr(Notes, "pause_seconds", property(lambda notes: next(pauses)))
    command = shell(sandbox, "echo 1 > $SANDLOOM_TRACE; exec sleep 600")
    command.see("note")
    command.handle.cancel()
    assert command.end() == [{"note": 1}]


def test_it_can_be_written_and_nothing_else(sandbox):
    """Also by its name in another place: it is on no file system of the sandbox's own."""
    script = """
    exec 2>&1
    chmod 666 $SANDLOOM_TRACE; rm -f $SANDLOOM_TRACE; ln -f /dev/null $SANDLOOM_TRACE
    ln $SANDLOOM_TRACE /workspace/link; mknod /run/other p; ls -A /run /workspace
    echo '"still there"' > $SANDLOOM_TRACE
    """
    command = shell(sandbox, script)
    assert command.end() == [{"note": "still there"}]
    said = b"".join(command.found["stdout"]).decode()
    assert said.split("/run:\n")[1].split() == ["identity", "trace", "/workspace:"]


@pytest.mark.root
def test_it_cannot_be_read(sandbox):
    """So no process of the command takes away what another one wrote."""
    command = shell(sandbox, "cat < $SANDLOOM_TRACE && echo read")
    assert command.end() == []
    assert command.found["stdout"] == []


def test_another_command_of_the_same_sandbox_has_another_one(sandbox):
    """Whatever name it tries, what it writes is its own."""
    first = shell(sandbox, "echo '\"first\"' > $SANDLOOM_TRACE; exec sleep 600")
    first.see("note")
    second = shell(sandbox, "for name in /*/*; do [ ! -p $name ] || echo '\"second\"' > $name; done")
    assert second.end() == [{"note": "second"}]
    first.handle.cancel()
    assert first.end() == [{"note": "first"}]


def test_a_flood_is_bounded_and_stops_neither_output_nor_the_end(sandbox, before):
    script = """
    (yes '{}' > $SANDLOOM_TRACE) & (yes xxxxxxxx | tr -d '\\n' > $SANDLOOM_TRACE) &
    until [ -e go ]; do sleep 0.1; done; sleep 1; echo out
    """
    command = shell(sandbox, script)
    command.see("note")
    (sandbox.workspace / "go").touch()
    notes = command.end()
    verdict = command.handle.wait()
    assert (verdict.reason, verdict.exit_code) == (Reason.EXIT, 0)
    assert command.found["stdout"] == [b"out\n"]
    assert 0 < len(notes) <= MAX_LINES + 1
    assert sum(map(len, command.found["note"])) <= MAX_TOTAL_BYTES + 100
    assert left(sandbox) <= before


def test_a_command_that_never_starts_leaves_none(sandbox, before):
    assert sandbox.run("no-such-program").verdict.exit_code == 127
    assert left(sandbox) <= before


def test_a_fifo_that_cannot_be_made_is_told(sandbox, tmp_path: Path):
    plan = sandbox.template.plan
    with pytest.raises(SpawnerUnavailable, match="notes"):
        shell(sandbox, "true", plan=replace(plan, notes_dir=str(tmp_path / "gone")))
