"""A fleet on this machine: PostgreSQL, Redis and S3 of its own, then two API replicas, three workers (one of another
profile), beat and Flower, each with a password.

Data, passwords and the operator's token are kept below ``var/fleet`` and used again by the next start. Ctrl-C or
SIGTERM ends all of it, running commands last. A worker that ends by itself is left to the others, so that a fleet can
be seen to lose one: ``--kill NAME`` ends a process of a running fleet without a warning.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from honcho.environ import parse_procfile

from scripts.fleet_processes import Processes, kill
from tests.services.account import new_password
from tests.services.postgres import PostgresServer
from tests.services.process import ROOT
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer

DATABASE = "sandloom"
WORKERS = ("worker-1", "worker-2", "worker-other")
#: What makes its profile another one: listed with the others, never chosen for their sandboxes.
OTHER_PROFILE = {"SANDBOX_TMPFS_BYTES": str(64 << 20)}


def main() -> int:
    options = parse()
    directory: Path = options.directory
    if options.kill:
        return kill(directory, options.kill)
    # A Ctrl-C reaches this process alone: the servers and the fleet have sessions of their own, and end in order.
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    with servers(directory) as environment:
        subprocess.run(["sandloom", "db", "upgrade"], env=environment, cwd=ROOT, check=True, start_new_session=True)
        return run(directory, environment, options, ended)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fleet", description="A fleet on this machine.")
    parser.add_argument("--port", type=int, default=8080, help="of the first API replica; the second has the next")
    parser.add_argument("--flower-port", type=int, default=5555)
    parser.add_argument("--directory", type=Path, default=fleet_directory())
    parser.add_argument("--kill", metavar="NAME", help="kill a process of the fleet that runs, for example worker-2")
    return parser.parse_args()


def fleet_directory() -> Path:
    """Below the checkout, unless sandbox accounts could not get there: then where services keep their data."""
    inside = ROOT / "var" / "fleet"
    closed = [str(parent) for parent in inside.parents if parent.exists() and not parent.stat().st_mode & 0o001]
    if os.geteuid() != 0 or not closed:
        return inside
    return Path("/var/lib/sandloom/fleet")


@contextmanager
def servers(directory: Path) -> Iterator[dict[str, str]]:
    """PostgreSQL, Redis and S3 for as long as the block takes; the environment of a process that uses them."""
    with ExitStack() as stack:
        postgres, redis = PostgresServer(directory / "postgres"), RedisServer(directory / "redis")
        objects = S3Server(directory / "s3")
        for server in (postgres, redis, objects):
            stack.callback(server.stop)
            server.start()
        if not postgres.exists(DATABASE):
            postgres.execute(f'CREATE DATABASE "{DATABASE}"')
        yield dict(os.environ) | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(ROOT),
            "SANDBOX_HOST": "127.0.0.1",
            "SANDBOX_DATA_DIR": str(directory),
            "SANDBOX_INTERNAL_TOKEN": kept_secret(directory / "token"),
            "SANDBOX_SECRET_KEY": kept_secret(directory / "secret-key"),
            "SANDBOX_DATABASE_URL": postgres.url(DATABASE),
            "SANDBOX_BROKER_URL": redis.url(0),
            "SANDBOX_RESULT_BACKEND": redis.url(1),
            "SANDBOX_BUS_URL": redis.url(0),
            **objects.environment("sandloom"),
        }


def kept_secret(path: Path) -> str:
    """What the file holds; made at the first start, readable by this account alone."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(new_password() + "\n")
    return path.read_text().strip()


def run(directory: Path, environment: dict[str, str], options: argparse.Namespace, ended: threading.Event) -> int:
    """Every process until a signal comes, or until one that is no worker ends; returns the exit code."""
    commands = parse_procfile((ROOT / "Procfile").read_text()).processes
    processes = Processes(directory, environment)
    ports = (options.port, options.port + 1)
    password = kept_secret(directory / "flower-password")
    try:
        for number, port in enumerate(ports, 1):
            processes.start(f"api-{number}", commands["api"], PORT=str(port))
        for name in WORKERS:
            processes.start(name, commands["worker"], **(OTHER_PROFILE if name == "worker-other" else {}))
        processes.start("beat", commands["beat"])
        flower = {"FLOWER_PORT": str(options.flower_port), "FLOWER_BASIC_AUTH": f"sandloom:{password}"}
        processes.start("flower", commands["flower"], **flower)
        print(f"API on http://127.0.0.1:{ports[0]} and :{ports[1]}, the operator's token in {directory / 'token'}")
        print(f"Flower on http://127.0.0.1:{options.flower_port}, user sandloom, password in flower-password beside it")
        print("checked by: sandloom verify --fleet", flush=True)
        return processes.watch(ended, survivable=WORKERS)
    finally:
        processes.stop()


if __name__ == "__main__":
    sys.exit(main())
