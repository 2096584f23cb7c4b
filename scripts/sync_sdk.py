"""Makes the synchronous client from the asynchronous one: ``python -m scripts.sync_sdk``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SDK = Path(__file__).resolve().parent.parent / "sandloom" / "sdk"
SOURCES = ("client.py", "files.py", "follow.py", "process.py", "sandbox.py", "tenants.py", "transport.py")
_NOTE = "# Made from sandloom/sdk/aio/{name} by scripts/sync_sdk.py: change that one.\n"
_RULES = (
    (r"\bsandloom\.sdk\.aio\b", "sandloom.sdk"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bPending\[(\w+)\]", r"\1"),
    (r"\bimport Pending, ", "import "),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b(aclose|aread|aiter_bytes)\b", lambda match: {"aiter_bytes": "iter_bytes"}.get(match[0], match[0][1:])),
)

#: What reads differently without ``async``: the order of imports, loops that only hand over.
_FIXES = ("check", "--quiet", "--fix", "--unsafe-fixes", "--select", "C416,F401,I,UP028", "-")


def synchronous(name: str) -> str:
    """The text of the synchronous module of this name."""
    text = (SDK / "aio" / name).read_text(encoding="utf-8")
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    for arguments in (_FIXES, ("format", "--quiet", "-")):
        ruff = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(SDK / name)]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return _NOTE.format(name=name) + text


if __name__ == "__main__":
    for source in SOURCES:
        (SDK / source).write_text(synchronous(source), encoding="utf-8")
