"""A command that is not over soon is told of while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytestmark = pytest.mark.bwrap


def test_a_command_that_lasts_is_told_of_once_while_it_runs(sandbox):
    told = []

    def lasting():
        told.append(True)
        (sandbox.workspace / "go").touch()

    waits = "until [ -e go ]; do echo waiting; sleep 0.01; done"
    handle = sandbox.start(replace(sandbox.template, argv=("sh", "-c", waits)), lambda *_: None)
    assert handle.wait(lasting, 0.05).exit_code == 0
    assert told == [True]


def test_a_command_that_is_over_before_is_not_told_of(sandbox):
    told = []
    handle = sandbox.start(sandbox.template, lambda *_: None)
    assert handle.wait(lambda: told.append(True), 3600).exit_code == 0
    assert not told
