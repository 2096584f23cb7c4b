"""One call for each of several names, where one that fails keeps none of the others back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sandloom.cli.advice import told
from sandloom.cli.output import exit_code_of, print_error, print_json, print_table
from sandloom.errors import SandloomError, Unauthorized

Row = dict[str, Any]


def each(names: Iterable[str], call: Callable[[str], Row]) -> tuple[list[Row], int]:
    """A row for each name that went well, and an exit code: 0, or that of the first failure. Each failure is printed
    with its name. Raises Unauthorized, which is the same for all of them."""
    rows: list[Row] = []
    code = 0
    for name in names:
        try:
            rows.append(call(name))
        except Unauthorized:
            raise
        except SandloomError as error:
            print_error(error, f"{name}: {told(error)}")
            code = code or exit_code_of(error)
    return rows, code


def print_rows(columns: tuple[str, ...], rows: list[Row], as_json: bool) -> None:
    """Nothing for people where nothing went well: the errors have been said."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(columns, rows)
