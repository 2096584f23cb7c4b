"""An embedded service of our own, in a process of its own and a directory that goes with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

import sandloom
from sandloom.cli.invocation import Stop
from sandloom.settings import read_token

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class LocalService:
    url: str
    token: str
    data_dir: Path


@contextmanager
def local_service(environ: Mapping[str, str]) -> Iterator[LocalService]:
    """``sandloom up`` on a free loopback port. Raises Stop with the end of its log when it does not come up."""
    with tempfile.TemporaryDirectory(prefix="sandloom-demo-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        # The accounts of sandboxes pass through to their workspaces.
        directory.chmod(0o711)
        port = _free_port()
        log = directory / "service.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                _command(port, directory / "data"),
                env=_clean(environ),
                # Not the directory of the caller: its .env belongs to another service.
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _await_health(url, process, log)
            token = read_token(directory / "data")
            if token is None:
                raise Stop(f"the service came up without a token; its log ends:\n{tail(log)}", 1)
            yield LocalService(url, token, directory / "data")
        finally:
            _end(process)


def _command(port: int, data_dir: Path) -> list[str]:
    options = {"--host": "127.0.0.1", "--port": str(port), "--data-dir": str(data_dir)}
    return [sys.executable, "-m", "sandloom", "up", *(word for pair in options.items() for word in pair)]


def running_service(url: str, token: str | None) -> bool:
    """Whether a service at ``url`` answers and takes the token."""
    if not token:
        return False
    try:
        with httpx.Client(base_url=url, trust_env=False, timeout=3.0) as client:
            headers = {"Authorization": f"Bearer {token}"}
            return client.get("/api/v1/sandboxes", params={"limit": 1}, headers=headers).status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):  # the last: no header may hold this token
        return False


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])


def _await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    with httpx.Client(base_url=url, trust_env=False, timeout=3.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise Stop(f"the service ended with exit code {process.returncode}; its log ends:\n{tail(log)}")
            try:
                # A worker registers after the API answers; without one nothing can be resolved.
                if client.get("/healthz").json().get("status") == "UP":
                    return
            except (httpx.HTTPError, ValueError):
                pass
            time.sleep(0.1)
    raise Stop(f"the service did not become ready within {_START_SECONDS:.0f} s; its log ends:\n{tail(log)}", 1)


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM, and KILL for what is left: the session holds the service and everything that it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without settings: a demo must not touch the database or token of a real deployment."""
    kept = {name: value for name, value in environ.items() if not name.startswith("SANDBOX_")}
    isolation = ("SANDBOX_ISOLATION_LEVEL", "SANDBOX_BUBBLEWRAP_PATH", "SANDBOX_NETWORK_MODE", "SANDBOX_LOG_LEVEL")
    kept |= {name: environ[name] for name in isolation if name in environ}
    root = str(Path(sandloom.__file__).resolve().parents[1])
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [root, environ.get("PYTHONPATH")]))}
