"""How it looks inside: what programs expect of a machine, the same in plain and in login shells."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest

from sandloom.execution import etc
from sandloom.execution.environment import PATH
from sandloom.execution.spec import Network
from tests.services.need import missing

pytestmark = pytest.mark.bwrap

SHELLS = [("/bin/sh", "-c"), ("/bin/sh", "-lc"), ("/bin/bash", "-c"), ("/bin/bash", "-lc")]


def test_home_path_and_locale_are_the_same_in_every_shell(sandbox):
    for shell, flag in SHELLS:
        if shutil.which(shell) is None:
            missing(shell)
        ran = sandbox.run(shell, flag, 'echo "$HOME|$PATH|$LANG|$PWD|$USER|$TMPDIR"; cd; pwd; umask')
        assert ran.text.splitlines() == [f"/home|{PATH}|C.UTF-8|/workspace|sandbox|/tmp", "/home", "0022"], ran
        assert ran.stderr == b""


def test_the_locale_is_one_that_programs_find(sandbox):
    ran = sandbox.shell("locale charmap; python3 -c 'import sys; print(sys.stdout.encoding, \"h\\u00e9\")'")
    assert ran.text.split() == ["UTF-8", "utf-8", "h\u00e9"]
    assert ran.stderr == b""


def test_the_time_zone_is_the_hosts(sandbox):
    assert sandbox.run("date", "+%Z %z").text == time.strftime("%Z %z")


def test_stdin_is_empty_and_the_host_has_a_name(sandbox):
    ran = sandbox.shell("wc -c; hostname; getent hosts $(hostname) | wc -l; cat /etc/hostname")
    assert ran.text.split() == ["0", "sandbox", "1", "sandbox"]


def test_the_resolver_follows_the_network(sandbox):
    plan = sandbox.template.plan
    assert plan.network is Network.ISOLATED
    assert "nameserver" not in sandbox.run("cat", "/etc/resolv.conf").text
    host_file = etc.resolv_conf(Network.HOST)
    if host_file is None:
        missing("a resolv.conf that everybody may read")
    shown = sandbox.run(
        "cat", "/etc/resolv.conf", plan=replace(plan, network=Network.HOST, resolv_conf=host_file)
    ).stdout
    with open(host_file, "rb") as stream:
        assert shown == stream.read()


def test_terminals_can_be_made(sandbox):
    script = "import pty; pty.spawn(['sh', '-c', 'test -t 0 && test -t 1 && tty'])"
    assert sandbox.python(script).text.startswith("/dev/pts/")


def test_script_records_a_terminal(sandbox):
    if sandbox.run("/bin/sh", "-c", "command -v script").verdict.exit_code != 0:
        missing("script of util-linux or bsdutils")
    ran = sandbox.shell("script -qec 'test -t 1 && echo a terminal' log; grep -c 'a terminal' log")
    assert "a terminal" in ran.text
    assert ran.verdict.exit_code == 0
