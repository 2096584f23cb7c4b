"""Printing: JSON for programs, tables for people, colours on a terminal only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from sandloom.errors import SandloomError

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Adds ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def print_json(value: Any) -> None:
    click.echo(_escaped_in_json(json.dumps(value, indent=2, ensure_ascii=False, default=str)))


def printable(text: str) -> str:
    """In one line, with an escape for whatever moves a cursor, changes a terminal or hides another character."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def one_line(text: str) -> str:
    """``printable``, without line breaks: what others sent may be in it."""
    return printable(" ".join(text.split()))


def print_error(error: SandloomError, text: str) -> None:
    """The stable code and a text, as one line on standard error."""
    click.echo(f"sandloom: {error.code}: {one_line(text)}", err=True)


def exit_code_of(error: SandloomError) -> int:
    code: int = getattr(error, "exit_code", 1)
    return code


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """One line per row; aligned, with a header. Long cells wrap on a terminal and stay whole in a pipe."""
    cells = [[cell_text(row.get(column)) for column in columns] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells)
        return
    titles = [column.upper() for column in columns]
    widths = [max(len(line[index]) for line in [titles, *cells]) for index in range(len(columns))]
    for line in [titles, *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def cell_text(value: Any) -> str:
    """``printable``: names and commands are other people's."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " ".join(printable(str(item)) for item in value)
    return printable(str(value))


def print_value(value: Mapping[str, Any]) -> None:
    """One ``name: value`` per line."""
    width = max((len(name) for name in value), default=0)
    for name, item in value.items():
        click.echo(f"{name.ljust(width)}  {cell_text(item)}")


def write_bytes(data: bytes, *, err: bool = False) -> None:
    """Exact bytes, at once."""
    stream = sys.stderr.buffer if err else sys.stdout.buffer
    stream.write(data)
    stream.flush()


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _escaped_in_json(text: str) -> str:
    """JSON escapes control characters up to 31 itself; what else a terminal obeys is only ever inside strings."""
    return (
        text
        if text.isascii()
        else "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
    )


def _rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)
