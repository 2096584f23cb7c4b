"""Real packages, as pip gets them here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def download(directory: Path, *options: str) -> str:
    """Empty when pip downloaded what ``options`` ask for, without what it depends on; else its last words."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(directory), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return "pip took too long"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]
