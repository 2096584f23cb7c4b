"""Processes of a deployment. ``api`` and ``workers`` are loaded by name: they are not part of the wheel."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from sandloom.cli import remote_workers
from sandloom.cli.invocation import Invocation, Stop
from sandloom.errors import SandloomError, SettingsInvalid
from sandloom.settings import TOKEN_FILE, Role, Settings, server_settings


@click.command()
@click.option("--host", help="Address to bind; 127.0.0.1 unless SANDBOX_HOST is set.")
@click.option("--port", type=int, help="Port to bind.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the embedded service keeps its files.")
@click.option("--token", help="The operator's token; visible to others in the process list.")
@click.pass_obj
def up(invocation: Invocation, host: str | None, port: int | None, data_dir: Path | None, token: str | None) -> int:
    """The embedded service: API, worker and maintenance in one process, on SQLite, without other servers."""
    options = {"host": host, "port": port, "data_dir": _absolute(data_dir), "internal_token": token}
    settings = start_settings(invocation, Role.EMBEDDED, options)
    check_address(settings)
    return _run("workers.embedded", settings)


@click.command()
@click.option("--host", help="Address to bind.")
@click.option("--port", type=int, help="Port to bind.")
@click.pass_obj
def api(invocation: Invocation, host: str | None, port: int | None) -> None:
    """One API process of a fleet (gunicorn)."""
    check_address(start_settings(invocation, Role.API, {"host": host, "port": port}))
    root = checkout()
    # gunicorn reads the settings again in its own process, so options travel as variables.
    environ = dict(invocation.environ)
    environ |= {"SANDBOX_HOST": host} if host else {}
    environ |= {"SANDBOX_PORT": str(port)} if port else {}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), environ.get("PYTHONPATH")]))
    config = str(root / "api" / "gunicorn_conf.py")
    os.execve(sys.executable, [sys.executable, "-m", "gunicorn", "-c", config, "api.wsgi:create()"], environ)


@click.group(invoke_without_command=True)
@click.option("--id", "worker_id", help="Stable name of this worker.")
@click.option("--capacity", type=int, help="Sandboxes this worker holds at once.")
@click.pass_context
def worker(context: click.Context, worker_id: str | None, capacity: int | None) -> int:
    """One worker of a fleet: it owns its workspaces and runs their commands. With a command: about another one, through
    the API."""
    if context.invoked_subcommand is not None:
        return 0
    invocation: Invocation = context.obj
    options = {"worker_id": worker_id, "worker_capacity": capacity}
    return _run("workers.main", start_settings(invocation, Role.WORKER, options))


@click.command()
@click.pass_obj
def beat(invocation: Invocation) -> int:
    """Periodic maintenance of a fleet; two of them do no harm."""
    return _run("workers.beat", start_settings(invocation, Role.BEAT, {}))


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind. Flower has no login of its own.")
@click.option("--port", type=int, default=5555, show_default=True, help="Port to bind.")
@click.pass_obj
def flower(invocation: Invocation, host: str, port: int) -> None:
    """Flower over the broker of a fleet."""
    settings = start_settings(invocation, Role.FLOWER, {})
    # In this process, so that the broker's password stands in no process list.
    from celery import Celery

    application = Celery("sandloom")
    application.conf.update(load_server("workers.config").celery_settings(settings, []))
    application.start(["flower", f"--address={host}", f"--port={port}"])


def start_settings(invocation: Invocation, role: Role, options: Mapping[str, Any]) -> Settings:
    """Settings to start with, logs configured and warnings given. What is wrong with them, or is refused by the servers
    that they name, ends with exit code 2."""
    checkout()
    try:
        settings = server_settings(invocation.environ, role, dotenv=invocation.dotenv, options=options)
    except SandloomError as error:
        error.exit_code = 2  # type: ignore[attr-defined]
        raise
    from sandloom.telemetry import configure, get_logger

    configure(settings.log_level, settings.log_format)
    log = get_logger("sandloom.cli")
    for warning in settings.warnings:
        log.warning("settings", problem=warning)
    if settings.origins["internal_token"] == "generated":
        log.info("operator token", file=str(settings.data_dir / TOKEN_FILE))
    from sandloom.broker.check import check_servers

    for server in check_servers(settings):
        for warning in server.warnings:
            log.warning("servers", problem=warning)
    return settings


def check_address(settings: Settings) -> None:
    """Raises SettingsInvalid when the API's address cannot be bound, before anything is started."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        name = "SANDBOX_HOST" if isinstance(error, socket.gaierror) else "SANDBOX_HOST, SANDBOX_PORT"
        where = f"{settings.host}, port {settings.port}, cannot be bound: {error.strerror}"
        raise SettingsInvalid(f"{name}: {where}; choose another address with --host or --port") from error


def checkout() -> Path:
    """The directory that holds ``api``, ``workers`` and ``migrations``; made importable."""
    root = Path(importlib.import_module("sandloom").__file__ or "").resolve().parents[1]
    if not all((root / name / "__init__.py").is_file() for name in ("api", "workers")):
        raise Stop("this command needs a checkout or the image: the wheel holds the client only")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return root


def load_server(name: str) -> ModuleType:
    """A module of the servers, by name."""
    checkout()
    return importlib.import_module(name)


def _run(module: str, settings: Settings) -> int:
    code: int = load_server(module).run(settings)
    return code


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else Path(os.path.abspath(path))


for _command in remote_workers.SUBCOMMANDS:
    worker.add_command(_command)

COMMANDS = (up, api, worker, beat, flower)
