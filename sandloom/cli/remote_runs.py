"""Client commands that run something: run, exec, logs, cancel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any

import click

from sandloom.cli.advice import told
from sandloom.cli.completion import sandbox_argument
from sandloom.cli.connection import connect
from sandloom.cli.copying import copy_in, copy_out
from sandloom.cli.invocation import Invocation, Stop, local_faults
from sandloom.cli.output import exit_code_of, json_option, print_error, print_json, printable, write_bytes
from sandloom.errors import ExecNotFound, SandloomError
from sandloom.ids import new_id
from sandloom.sdk import Event, Process, Result, Sandbox

_SIGNAL_BASE, _TIMED_OUT, _INTERRUPTED = 128, 124, 130
# Words after the first one belong to the command, also when they look like options.
_ARGV = {"allow_interspersed_args": False}
_INPUT = "Upload before the run: a local file to PATH in the sandbox, below /workspace unless it begins with /."
_OUTPUT = "Download after the run, also when that failed: a file or a directory, below /workspace unless it begins with"
_OUTPUT += " /, into the local directory."


@click.command(context_settings=_ARGV)
@click.option("--id", "sandbox_id", help="Use this sandbox and keep it; otherwise a new one is made and released.")
@click.option("--rm", "remove", is_flag=True, help="Release the sandbox at the end also when --id names it.")
@click.option("--scope", default="cli", show_default=True, help="workspace_scope_id of the sandbox.")
@click.option("-i", "--input", "inputs", multiple=True, metavar="FILE[:PATH]", help=_INPUT)
@click.option("-o", "--output", "outputs", multiple=True, metavar="PATH", help=_OUTPUT)
@click.option("--template", "templates", multiple=True, metavar="T", help="Mount it at /envs/T; NAME[@sha256:HEX].")
@click.option("--timeout", type=int, help="Seconds.")
@click.argument("argv", nargs=-1, required=True)
@click.pass_obj
def run(
    invocation: Invocation,
    sandbox_id: str | None,
    remove: bool,
    scope: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    templates: tuple[str, ...],
    timeout: int | None,
    argv: tuple[str, ...],
) -> int:
    """Run ARGV in a sandbox with live output; the exit code is the command's; when that is 0 and an output cannot be
    had, another one."""
    uploads = [_upload_pair(item) for item in inputs]
    downloads = [_download_pair(path) for path in outputs]
    code = 0
    try:
        with ExitStack() as stack:
            client = stack.enter_context(connect(invocation))
            keep = sandbox_id is not None and not remove
            box = stack.enter_context(client.sandbox(sandbox_id, scope=scope, keep=keep))
            if templates:
                box.attach_templates(*templates)
            with local_faults():
                for local, path in uploads:
                    parent = path.rpartition("/")[0]
                    if parent != "/workspace":
                        box.files.mkdir(parent, parents=True)
                    copy_in(box, local, path)
            code = exit_code(live(box, list(argv), timeout=timeout))
            missed = _fetch(box, downloads)
            code = code or missed
    except SandloomError as error:
        # A sandbox that cannot be released, too, leaves the exit code to the command.
        if code == 0:
            raise
        print_error(error, told(error))
    return code


def _fetch(box: Sandbox, downloads: list[tuple[str, str]]) -> int:
    """What can be had; of the rest it says why not. 0, or the exit code of the first fault."""
    code = 0
    for path, local in downloads:
        try:
            with local_faults():
                copy_out(box, path, local)
        except SandloomError as error:
            print_error(error, f"{path}: {told(error)}")
            code = code or exit_code_of(error)
        except Stop as stop:
            stop.show()
            code = code or stop.exit_code
    return code


@click.command("exec", context_settings=_ARGV)
@click.option("--timeout", type=int, help="Seconds.")
@click.option("--cwd", default="/workspace", show_default=True, help="Directory to run in.")
@click.option("--exec-scope", help="Commands of different scopes run side by side.")
@sandbox_argument
@click.argument("argv", nargs=-1, required=True)
@click.pass_obj
def exec_command(
    invocation: Invocation,
    timeout: int | None,
    cwd: str,
    exec_scope: str | None,
    sandbox_id: str,
    argv: tuple[str, ...],
) -> int:
    """Run ARGV in the sandbox ID with live output; the exit code is the command's."""
    with connect(invocation) as client:
        box = client.attach(sandbox_id)
        # An id names a sandbox that was just resolved, or one whose worker was restarted.
        box.connect()
        return exit_code(live(box, _words(argv), timeout=timeout, cwd=cwd, scope=exec_scope))


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on until the command has ended.")
@sandbox_argument
@click.argument("exec_id", metavar="EXEC")
@click.pass_obj
def logs(invocation: Invocation, follow: bool, sandbox_id: str, exec_id: str) -> None:
    """Output of a command."""
    with connect(invocation) as client:
        process = client.attach(sandbox_id).process(exec_id)
        if follow:
            _write(process.events())
            return
        result = process.poll(encoding="base64")
        write_bytes(result.stdout_bytes)
        write_bytes(result.stderr_bytes, err=True)


@click.command()
@sandbox_argument
@click.argument("exec_id", metavar="EXEC")
@json_option
@click.pass_obj
def cancel(invocation: Invocation, sandbox_id: str, exec_id: str, as_json: bool) -> None:
    """End a command and every process it started."""
    with connect(invocation) as client:
        cancelled = client.attach(sandbox_id).process(exec_id).cancel()
    if as_json:
        print_json({"cancelled": cancelled})
    else:
        click.echo("cancelled" if cancelled else "it had ended already")


def live(box: Sandbox, argv: list[str], **options: Any) -> Result:
    """Output as it appears, then the record. An interrupt ends the command, too, and says so."""
    process = box.process(f"run-{new_id()}")
    try:
        box.start(argv, exec_id=process.exec_id, **options)
        _write(process.events())
        return process.wait()
    except KeyboardInterrupt:
        raise Stop(f"interrupted; {_ended(process)}", _INTERRUPTED) from None


def _ended(process: Process) -> str:
    try:
        cancelled = process.cancel()
    except ExecNotFound:
        return "the command was not started"
    except SandloomError as error:
        return f"{process.exec_id} could not be cancelled and may still run: {error.code}: {error.detail}"
    return f"the command was cancelled ({process.exec_id})" if cancelled else "the command had ended already"


def exit_code(result: Result) -> int:
    """The command's own, 128 + signal, 124 after its timeout, 130 when cancelled, else 1."""
    if result.status == "TIMED_OUT":
        click.echo(f"sandloom: {result.reason or 'timeout'}: the command was ended", err=True)
        return _TIMED_OUT
    if result.status == "CANCELLED":
        return _INTERRUPTED
    if result.error:
        click.echo(printable(f"sandloom: {result.error}: {result.detail or result.status}"), err=True)
    if result.exit_code is not None:
        return result.exit_code
    return _SIGNAL_BASE + result.signal if result.signal else 1


def _words(argv: tuple[str, ...]) -> list[str]:
    """The separator after ID is ours, not the command's."""
    return list(argv[1:] if argv[0] == "--" else argv)


def _write(events: Iterator[Event]) -> None:
    for event in events:
        if event.kind in ("stdout", "stderr"):
            write_bytes(event.bytes, err=event.kind == "stderr")


def _upload_pair(item: str) -> tuple[str, str]:
    source, separator, target = item.partition(":")
    path = Path(source)
    if path.is_dir():
        raise Stop(f"{source} is a directory: 'sandloom cp' copies one into a sandbox that is kept (--id)")
    if not path.is_file():
        raise Stop(f"{source} is not a file")
    if not os.access(path, os.R_OK):
        raise Stop(f"{source} cannot be read by this account")
    return source, target if separator and target.startswith("/") else f"/workspace/{target or path.name}"


def _download_pair(item: str) -> tuple[str, str]:
    path = item if item.startswith("/") else f"/workspace/{item}"
    local = PurePosixPath(path).name
    if Path(local).is_dir():
        raise Stop(f"{local} is a directory here, which {path} cannot replace")
    return path, local


COMMANDS = (run, exec_command, logs, cancel)
