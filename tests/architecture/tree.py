"""The project's own files, as a checkout holds them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NOT_OURS = {".git", ".venv", "var", "build", "dist", "__pycache__", "node_modules"}


def own_files(*suffixes: str) -> Iterator[Path]:
    """Every file of the checkout, or those with one of the suffixes; caches and built things left out."""
    for directory, names, files in os.walk(ROOT):
        names[:] = sorted(n for n in names if n not in _NOT_OURS and not n.endswith((".egg-info", "_cache")))
        names[:] = [n for n in names if n != ".hypothesis"]
        for name in sorted(files):
            path = Path(directory, name)
            if path != ROOT / ".git" and path != ROOT / ".env" and (not suffixes or path.suffix in suffixes):
                yield path


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))
