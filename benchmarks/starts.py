"""What an import costs whoever starts a program, against an interpreter that does nothing."""

from __future__ import annotations

import shlex
import sys

from benchmarks.files import Line, Program

_COUNT = 20
STATEMENTS = ("import sandloom", "from sandloom import Client")


def imports() -> list[Line]:
    floor = _python("pass")
    return [Line(_python(statement), floor, _COUNT) for statement in STATEMENTS]


def _python(statement: str) -> Program:
    return Program(f"python -c {statement!r}", f"exec {shlex.join([sys.executable, '-c', statement])}")
