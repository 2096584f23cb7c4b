"""All programs, in one order, and the page's table of what is not contained."""

from __future__ import annotations

from . import calls, files, ipc, kernel, machine, network, processes, resources
from .program import EVERY_LEVEL, PROGRAMS

__all__ = ["PROGRAMS", "THEMES", "not_contained"]

THEMES = (files, calls, kernel, processes, ipc, network, resources, machine)


def not_contained() -> str:
    """The table of docs/isolation.md: what a program reaches, at which levels, and the program that shows it."""
    lines = [
        f"| What is reached | {' | '.join(EVERY_LEVEL)} | Shown by |",
        f"| --- |{' --- |' * (len(EVERY_LEVEL) + 1)}",
    ]
    for name, program in PROGRAMS.items():
        if program.reaches:
            cells = ["yes" if level in program.at else "no" for level in EVERY_LEVEL]
            lines.append(f"| {program.reaches} | {' | '.join(cells)} | `{name}` |")
    return "\n".join(lines) + "\n"
