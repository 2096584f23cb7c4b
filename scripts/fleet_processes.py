"""The processes of a local fleet: started with their names before each line, watched, ended in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Container, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Workers let their commands finish before they go.
STOP_SECONDS = 60.0
_WATCH_SECONDS = 0.2


class Processes:
    """Each in a session of its own; its process id is in ``run/NAME.pid`` below the directory."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._run = directory / "run"
        self._run.mkdir(mode=0o700, exist_ok=True)
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._printing = threading.Lock()

    def start(self, name: str, command: str, **environment: str) -> None:
        """A line of the Procfile, which becomes the program itself, with more in its environment."""
        process = subprocess.Popen(
            ["sh", "-c", command],
            env={**self._environment, "HONCHO_PROCESS_NAME": name, **environment},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running[name] = process
        (self._run / f"{name}.pid").write_text(f"{process.pid}\n")
        threading.Thread(target=self._print, args=(name, process), daemon=True).start()

    def watch(self, ended: threading.Event, survivable: Container[str]) -> int:
        """Until ``ended`` is set (0), or until a process ends that the others cannot do without (its code, or 1)."""
        while not ended.wait(_WATCH_SECONDS):
            for name, process in [*self._running.items()]:
                if (code := process.poll()) is None:
                    continue
                self._say(name, f"ended with {code}")
                self._forget(name)
                if name not in survivable:
                    return code if code > 0 else 1
        return 0

    def stop(self) -> None:
        """Asks all of them at once, and ends what is left after ``STOP_SECONDS``."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for name, process in [*self._running.items()]:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._say(name, "killed")
                process.kill()
                process.wait()
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self._running[name]
        (self._run / f"{name}.pid").unlink(missing_ok=True)

    def _print(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._say(name, line.decode("utf-8", "replace").rstrip("\n"))

    def _say(self, name: str, text: str) -> None:
        with self._printing:
            print(f"{name:<12} | {text}", flush=True)


def kill(directory: Path, name: str) -> int:
    """SIGKILL for a process of the fleet that runs in the directory; 1 when there is none of this name."""
    path = directory / "run" / f"{name}.pid"
    # The name may come from elsewhere: only a file that this fleet has made is read.
    if "/" in name or not path.is_file():
        print(f"no process {name} in {directory}", file=sys.stderr)
        return 1
    os.kill(int(path.read_text()), signal.SIGKILL)
    return 0
