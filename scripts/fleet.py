"""A fleet on this machine: PostgreSQL and Redis of its own, then every process of the Procfile.

Data, passwords and the operator's token are kept below ``var/fleet`` and used again by the next start. Ctrl-C or
SIGTERM ends all of it, running commands last.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.services.account import new_password
from tests.services.postgres import PostgresServer
from tests.services.process import ROOT
from tests.services.redis import RedisServer

DATABASE = "sandloom"
CONCURRENCY = "api=2,worker=2,beat=1,flower=1"
#: honcho, with patience: workers let their commands finish before they go.
HONCHO = "import honcho.manager as m; m.KILL_WAIT = 60; from honcho.command import main; main()"


def main() -> int:
    options = parse()
    directory: Path = options.directory
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    postgres, redis = PostgresServer(directory / "postgres"), RedisServer(directory / "redis")
    try:
        postgres.start()
        redis.start()
        environment = fleet_environment(directory, postgres, redis)
        environment["FLOWER_PORT"] = str(options.flower_port)
        return run_processes(directory, environment, options.port)
    finally:
        redis.stop()
        postgres.stop()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fleet", description="A fleet on this machine.")
    parser.add_argument("--port", type=int, default=8080, help="of the first API replica; the second has the next")
    parser.add_argument("--flower-port", type=int, default=5555)
    parser.add_argument("--directory", type=Path, default=fleet_directory())
    return parser.parse_args()


def fleet_directory() -> Path:
    """Below the checkout, unless sandbox accounts could not get there: then where services keep their data."""
    inside = ROOT / "var" / "fleet"
    closed = [str(parent) for parent in inside.parents if parent.exists() and not parent.stat().st_mode & 0o001]
    if os.geteuid() != 0 or not closed:
        return inside
    return Path("/var/lib/sandloom/fleet")


def fleet_environment(directory: Path, postgres: PostgresServer, redis: RedisServer) -> dict[str, str]:
    if not postgres.exists(DATABASE):
        postgres.execute(f'CREATE DATABASE "{DATABASE}"')
    return dict(os.environ) | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "SANDBOX_HOST": "127.0.0.1",
        "SANDBOX_DATA_DIR": str(directory),
        "SANDBOX_INTERNAL_TOKEN": kept_secret(directory / "token"),
        "SANDBOX_SECRET_KEY": kept_secret(directory / "secret-key"),
        "SANDBOX_DATABASE_URL": postgres.url(DATABASE),
        "SANDBOX_BROKER_URL": redis.url(0),
        "SANDBOX_RESULT_BACKEND": redis.url(1),
        "SANDBOX_BUS_URL": redis.url(0),
    }


def kept_secret(path: Path) -> str:
    """What the file holds; made at the first start, readable by this account alone."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(new_password() + "\n")
    return path.read_text().strip()


def run_processes(directory: Path, environment: dict[str, str], port: int) -> int:
    """Runs the Procfile until it ends; a signal for this process ends it in order."""
    subprocess.run(["sandloom", "db", "upgrade"], env=environment, cwd=ROOT, check=True)
    print(f"API on http://127.0.0.1:{port} and :{port + 1}, Flower on http://127.0.0.1:{environment['FLOWER_PORT']}")
    print(f"the operator's token is in {directory / 'token'}", flush=True)
    options = ["--no-colour", "-e", os.devnull, "-p", str(port), "-c", CONCURRENCY]
    processes = subprocess.Popen([sys.executable, "-c", HONCHO, "start", *options], env=environment, cwd=ROOT)
    # A Ctrl-C at the terminal reaches honcho directly.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: processes.send_signal(signal.SIGTERM))
    code = processes.wait()
    return 0 if code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM) else code


if __name__ == "__main__":
    sys.exit(main())
