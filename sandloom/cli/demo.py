"""``sandloom demo``: a real project's own tests in a sandbox, from upload to release."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import click

from sandloom.cli import demo_project
from sandloom.cli.connection import base_url, data_dir
from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.local_service import local_service, running_service
from sandloom.cli.output import write_bytes
from sandloom.cli.servers import checkout
from sandloom.sdk import Client, Result, Sandbox
from sandloom.settings import read_token

PYTHON = "/usr/bin/python3"
_TIMEOUT_SECONDS = 120


@click.command()
@click.pass_obj
def demo(invocation: Invocation) -> int:
    """Run the tests of a real project in a sandbox, with live output, and say what was done."""
    checkout()
    archive = _download(invocation)
    with _service(invocation) as client:
        code = _job(client, archive)
    click.echo(
        f"\nKeep a service running:  {_program()} up"
        "\nIts API, described:      http://127.0.0.1:8080/docs (while it runs)"
        "\nFirst steps in code:     README.md, examples/quickstart.py"
    )
    return code


def say(text: str) -> None:
    click.secho(f"==> {text}", bold=True)


def _download(invocation: Invocation) -> Path:
    base = invocation.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(base) / "sandloom"
    say(f"Getting the source release of {demo_project.NAME} {demo_project.VERSION} (kept in {cache})")
    return demo_project.fetch(cache)


@contextmanager
def _service(invocation: Invocation) -> Iterator[Client]:
    """The service that is up already, else one of our own for as long as the demo takes."""
    environ = invocation.environ
    url = base_url(environ)
    token = environ.get("SANDBOX_INTERNAL_TOKEN") or read_token(data_dir(environ))
    if token and running_service(url, token):
        say(f"Using the service at {url}")
        with Client(url, token) as client:
            yield client
        return
    say("Starting the embedded service: one process, SQLite, no other servers")
    started = time.monotonic()
    with local_service(environ) as service, Client(service.url, service.token) as client:
        worker = client.health().get("worker") or {}
        level = (worker.get("capabilities") or {}).get("selected_level", "unknown")
        say(f"It is up at {service.url} after {time.monotonic() - started:.1f} s; isolation level: {level}")
        yield client


def _job(client: Client, archive: Path) -> int:
    with client.sandbox(scope="demo") as first:
        say(f"Sandbox {first.id} (uid {_uid(first)}): uploading {archive.stat().st_size // 1024} KiB")
        first.files.upload(archive, "/workspace/project.tar.gz")
        first.run("mkdir project && tar -xzf project.tar.gz -C project --strip-components=1").check()
        first.files.write("/workspace/run_tests.py", _runner())
        say("Running the project's own tests inside; this is their output, as it comes")
        result = _live(first, [PYTHON, "../run_tests.py", "tests", "/workspace/report.json"])
        report = json.loads(first.files.read("/workspace/report.json"))
        say(
            f"Fetched report.json: {report['tests']} tests in {report['modules']} modules, {report['failed']} failed,"
            f" {report['skipped']} skipped, {report['seconds']} s on Python {report['python']}"
        )
        say(
            f"The record says: {result.status}, exit code {result.exit_code}, {_milliseconds(result)} of CPU,"
            f" {result.last_seq} events"
        )
        second = _second(client, first)
    for box in (first, second):
        # Repeating a release is harmless and says what became of it.
        if (status := box.release()) != "RELEASED":
            raise Stop(f"sandbox {box.id} is {status}", 1)
    say("Both sandboxes are released: their processes and files are gone")
    return 0 if result.ok and report["failed"] == 0 else 1


def _live(box: Sandbox, argv: list[str]) -> Result:
    process = box.start(argv, cwd="/workspace/project", timeout=_TIMEOUT_SECONDS)
    for event in process.events():
        if event.kind in ("stdout", "stderr"):
            write_bytes(event.bytes)
    return process.wait()


def _second(client: Client, first: Sandbox) -> Sandbox:
    """A sandbox beside the first one sees nothing of it; anything else ends the demo with an error."""
    with client.sandbox(scope="demo-neighbour") as second:
        seen = second.run("ls -A /workspace; find / -xdev -name report.json 2>/dev/null; true").check()
        if seen.stdout.strip():
            raise Stop(f"a second sandbox can see: {seen.stdout.strip()}", 1)
        say(
            f"Sandbox {second.id} (uid {_uid(second)}) beside it: its workspace is empty,"
            " and no path in it leads to report.json"
        )
        if not any(entry.name == "report.json" for entry in first.files.list()):
            raise Stop("the first sandbox lost its report", 1)
    return second


def _uid(box: Sandbox) -> str:
    """As the sandbox itself sees it; without root all sandboxes have the worker's."""
    return box.run(["id", "-u"]).check().stdout.strip()


def _program() -> str:
    """How this command was started, for the next one."""
    name = Path(sys.argv[0])
    if name.name != "sandloom":
        return f"{sys.executable} -m sandloom"
    return os.path.relpath(name) if name.is_relative_to(Path.cwd()) else str(name)


def _runner() -> str:
    return resources.files("sandloom.cli").joinpath("demo_runner.py").read_text("utf-8")


def _milliseconds(result: Result) -> str:
    return f"{result.usage.cpu_ms} ms" if result.usage and result.usage.cpu_ms is not None else "an unknown time"


COMMANDS = (demo,)
