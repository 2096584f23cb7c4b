"""Lifecycle calls have a sandbox alone; file calls share it."""

from __future__ import annotations

import threading

import pytest

from sandloom.errors import FilePathLocked
from sandloom.ids import SandboxKey
from workers.gates import Gates

KEY = SandboxKey("default", "box")


def test_file_calls_share() -> None:
    gates = Gates()
    with gates.shared(KEY), gates.shared(KEY):
        pass


def test_file_calls_are_refused_while_a_lifecycle_call_has_the_sandbox() -> None:
    gates = Gates()
    with gates.exclusive(KEY):
        with pytest.raises(FilePathLocked), gates.shared(KEY):
            pass
        with gates.shared(SandboxKey("other", "box")):
            pass
    with gates.shared(KEY):
        pass


def test_a_lifecycle_call_waits_for_file_calls_and_keeps_new_ones_out() -> None:
    gates = Gates()
    entered = threading.Event()
    waiting = threading.Event()

    def lifecycle() -> None:
        waiting.set()
        with gates.exclusive(KEY):
            entered.set()

    thread = threading.Thread(target=lifecycle)
    with gates.shared(KEY):
        thread.start()
        assert waiting.wait(10)
        assert not entered.wait(0.1)
    assert entered.wait(10)
    thread.join(10)


def test_two_lifecycle_calls_follow_each_other() -> None:
    gates = Gates()
    inside = []
    most = []

    def lifecycle() -> None:
        with gates.exclusive(KEY):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=lifecycle) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == [1] * 8
