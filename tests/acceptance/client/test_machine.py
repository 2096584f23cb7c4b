"""What adapters make of a sandbox, without the frameworks."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from sandloom import Client
from sandloom.adapters.machine import Machine
from sandloom.errors import ValidationFailed
from tests.isolation.kit import with_enough_time

pytestmark = pytest.mark.bwrap


@pytest.fixture(scope="module")
def machine(client_of_module: Client) -> Iterator[Machine]:
    with client_of_module.sandbox(scope="machine") as box:
        yield Machine(box)


@pytest.fixture(scope="module")
def client_of_module(service) -> Iterator[Client]:
    with Client(service.url, service.token) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _empty(machine: Machine) -> Iterator[None]:
    yield
    left = machine.run(["sh", "-c", "rm -rf /tmp/* /tmp/.[!.]*; ls -A /workspace"])
    assert left.text == "", "a file that carried a call is still there"


def script(machine: Machine, text: str, **options) -> str:
    done = machine.run(["sh", "-c", text], **options)
    assert done.exit_code == 0, done
    return done.text


def test_tmp_is_what_the_command_before_left(machine: Machine) -> None:
    script(machine, "cd /tmp; mkdir d; echo 1 > d/file; echo 2 > .hidden; echo 3 > 'a name'; ln -s /etc link")
    assert script(machine, "cd /tmp; cat d/file .hidden 'a name'; readlink -f link") == "1\n2\n3\n/etc\n"
    script(machine, "cd /tmp; mv d e; rm .hidden 'a name'; mkdir .hidden; ln -sfn /usr link; echo 4 >> e/file")
    assert script(machine, "cd /tmp; cat e/file; readlink -f link; ls -A; ls -A .hidden") == (
        "1\n4\n/usr\n.hidden\ne\nlink\n"
    )
    script(machine, "rm -rf /tmp/* /tmp/.hidden")
    assert script(machine, "ls -A /tmp /home/.tmp") == "/home/.tmp:\n\n/tmp:\n"


def test_commands_side_by_side_take_nothing_from_each_other(machine: Machine) -> None:
    script(machine, "echo 0 > /tmp/shared")
    with ThreadPoolExecutor(4) as pool:
        each = [pool.submit(script, machine, f"cat /tmp/shared; echo {n} > /tmp/{n}; sleep 0.2") for n in range(4)]
        assert [one.result() for one in each] == ["0\n"] * 4
    assert script(machine, "cat /tmp/?") == "0\n1\n2\n3\n"


def test_a_command_that_is_ended_keeps_what_it_made(machine: Machine) -> None:
    def attempt(seconds: float) -> bool:
        done = machine.run(["sh", "-c", "echo 1 > /tmp/made; echo begun; sleep 600"], timeout=seconds)
        assert done.timed_out
        return done.stdout == b"begun\n"

    with_enough_time(attempt, 2)
    assert script(machine, "cat /tmp/made") == "1\n"


def test_exit_codes_are_those_of_a_shell(machine: Machine) -> None:
    codes = [["sh", "-c", "exit 7"], ["sh", "-c", "kill -KILL $$"], ["no-such-program"], ["/etc/passwd"]]
    assert [machine.run(argv).exit_code for argv in codes] == [7, 137, 127, 126]


def test_it_runs_anywhere_with_any_environment(machine: Machine) -> None:
    told = script(machine, 'pwd; echo "$PATH" "$OTHER"', cwd="/usr/bin", env={"PATH": "/usr/bin:/bin", "OTHER": "a b"})
    assert told == "/usr/bin\n/usr/bin:/bin a b\n"
    with pytest.raises(ValidationFailed):
        machine.run(["true"], env={"not a name": ""})


def test_arguments_and_standard_input_may_be_large(machine: Machine) -> None:
    words = [f"it's {n}" for n in range(3000)]
    done = machine.run(["printf", "%s\n", *words], stdin=b"x")
    assert done.stdout.decode().splitlines() == words
    assert machine.run(["wc", "-c"], stdin=bytes(3 << 20)).text.strip() == str(3 << 20)


@pytest.mark.parametrize("path", ["deep/down/file", "/tmp/there/file", "/home/file"])
def test_files_are_written_and_read_wherever_the_sandbox_may(machine: Machine, path: str) -> None:
    for content in (bytes(range(256)), b"", bytes(range(256)) * 8192):
        machine.write(path, content)
        assert machine.read(path) == content
    with pytest.raises(OSError, match="large") as caught:
        machine.read(path, max_bytes=1000)
    assert caught.value.errno == errno.EFBIG
    script(machine, "rm -rf deep /home/file")


def test_files_that_cannot_be_are_errors_of_python(machine: Machine) -> None:
    script(machine, "echo 1 > file; ln -s file link; echo 2 > shut; chmod 0 shut; mkfifo pipe")
    assert machine.read("link") == b"1\n"
    machine.write("link", b"3")
    assert machine.read("file") == b"3"
    for path, kind in {"nothing": FileNotFoundError, "/etc": IsADirectoryError, "shut": PermissionError}.items():
        with pytest.raises(kind):
            machine.read(path)
    with pytest.raises(OSError, match="nvalid"):
        machine.read("pipe")
    for path, kind in {"file/below": NotADirectoryError, "/etc": IsADirectoryError, "shut": PermissionError}.items():
        with pytest.raises(kind):
            machine.write(path, b"")
    for path in ("/etc/new", "/new/file"):
        with pytest.raises(PermissionError):
            machine.write(path, b"")
    script(machine, "rm -f file link shut pipe")


def test_a_call_that_is_cancelled_ends_its_command(machine: Machine) -> None:
    async def leave() -> None:
        with anyio.move_on_after(0.5) as scope:
            await machine.arun(["sh", "-c", "sleep 600 # to be left"])
        assert scope.cancelled_caught

    anyio.run(leave)
    (record,) = [found for found in machine.box.processes(limit=5) if "to be left" in found.argv[-1]]
    assert machine.box.process(record.exec_id).wait().status == "CANCELLED"
