"""The command line. Its modules take a moment to load, so the entry points load them where an interrupt is expected."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["doctor_main", "main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command ``sandloom``. Interrupted at any moment, it ends with 130 and without a traceback."""
    try:
        from sandloom.cli.app import main as run

        run(arguments)
    except KeyboardInterrupt:
        sys.exit(130)


def doctor_main() -> None:
    """The command ``sandloom-doctor``."""
    main(["doctor", *sys.argv[1:]])
