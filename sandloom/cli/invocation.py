"""What every command gets, and how it stops with a plain message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from sandloom.cli.output import printable


@dataclass(frozen=True, slots=True)
class Invocation:
    """The environment as it was at start, and the fallback file."""

    environ: Mapping[str, str]
    dotenv: Path


class Stop(click.ClickException):
    """A plain message and an exit code, for what has no error code of the service."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        lines = "\n".join(printable(line) for line in self.message.split("\n"))
        click.echo(f"sandloom: {lines}", err=True, file=file)


@contextmanager
def local_faults() -> Iterator[None]:
    """What fails with a file of this machine inside, as a plain message. The service's own faults are no OSErrors."""
    try:
        yield
    except OSError as error:
        raise Stop(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
