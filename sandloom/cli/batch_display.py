"""The progress of a batch on standard error: a bar on a terminal, else lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import click

from sandloom.batch.junit import message_of
from sandloom.batch.progress import Progress
from sandloom.cli.output import printable

LINE_SECONDS = 5.0


class Display(Protocol):
    def progress(self, progress: Progress) -> None: ...

    def failure(self, result: Mapping[str, Any]) -> None: ...


@contextmanager
def display() -> Iterator[Display]:
    """For as long as the batch runs."""
    if not sys.stderr.isatty():
        lines = Lines()
        yield lines
        lines.close()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (BarColumn(), TextColumn("{task.description}", markup=False))
    with Bars(*columns, console=Console(stderr=True)) as bars:
        yield _Bar(bars)


class Lines:
    """A line when something has changed, at most one in ``LINE_SECONDS``; every failure at once."""

    def __init__(self) -> None:
        self._last: Progress | None = None
        self._shown: Progress | None = None
        self._next = 0.0

    def progress(self, progress: Progress) -> None:
        self._last = progress
        before = self._shown
        if time.monotonic() >= self._next and (before is None or _counts(before) != _counts(progress)):
            self._show()

    def failure(self, result: Mapping[str, Any]) -> None:
        click.echo(_failed(result), err=True)

    def close(self) -> None:
        if self._last is not self._shown:
            self._show()

    def _show(self) -> None:
        click.echo(str(self._last), err=True)
        self._shown = self._last
        self._next = time.monotonic() + LINE_SECONDS


class _Bar:
    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=None)

    def progress(self, progress: Progress) -> None:
        self._bars.update(self._task, total=progress.total, completed=progress.through, description=str(progress))

    def failure(self, result: Mapping[str, Any]) -> None:
        from rich.text import Text

        self._bars.console.print(Text(_failed(result), style="red"))


def _failed(result: Mapping[str, Any]) -> str:
    return printable(f"{result['status'].lower()}  {result['id']}: {message_of(result)}")


def _counts(progress: Progress) -> tuple[int, ...]:
    return progress.succeeded, progress.failed, progress.skipped, progress.running, progress.waiting
