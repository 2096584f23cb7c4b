"""Every UPDATE in the code is part of an interleaving, and means the same whatever the order of its assignments."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar, cast

import pytest
from sqlalchemy import Connection, Update, event

import sandloom
from sandloom.db import Database
from sandloom.db.prepared import Write
from sandloom.errors import SandloomError
from sandloom.execs.repository import LostRace
from tests.integration.domain.pairs import STATES, WRITES
from tests.integration.domain.world import World

T = TypeVar("T")
ROOT = Path(sandloom.__file__).parent
_ASSIGNED = re.compile(r"(?:^|, )(\w+)=(?!=)")

#: (file below sandloom/, constant or function, table)
Site = tuple[str, str, str]


def sites() -> Counter[Site]:
    """Where an UPDATE is written, and how many."""
    found = Counter((*place, str(table)) for place, table in _constants().values() if table is not None)
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "statements.py":
            continue  # sends nothing: what it builds is a prepared write here or elsewhere
        for place, call in _updates(ast.parse(path.read_text()), ()):
            found[str(path.relative_to(ROOT)), place, ast.unparse(call.args[0])] += 1
    return found


def _updates(node: ast.AST, place: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    """Those that are not prepared. ``place``: classes and functions around it, down to the first function."""
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, ast.ClassDef) or (isinstance(child, ast.FunctionDef) and not _in_function(node, place)):
            inner = (*place, child.name)
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            if child.func.id == "Write":
                continue
            if child.func.id == "update":
                yield ".".join(place), child
        yield from _updates(child, inner)


def _in_function(node: ast.AST, place: tuple[str, ...]) -> bool:
    return bool(place) and not isinstance(node, ast.ClassDef)


@cache
def _constants() -> dict[int, tuple[tuple[str, str], Any]]:
    """By identity of a prepared write: its module's file and its name, and the table if it is an UPDATE."""
    for module in pkgutil.walk_packages(sandloom.__path__, "sandloom."):
        if module.name.split(".")[1] in ("db", "execs", "fleet", "files", "reclaim", "sandboxes", "tenants"):
            importlib.import_module(module.name)
    found = {}
    for name, module_ in list(sys.modules.items()):
        if name.startswith("sandloom.") and module_.__file__:
            for attribute, value in vars(module_).items():
                if isinstance(value, Write):
                    statement = value._statement
                    table = statement.table if isinstance(statement, Update) else None
                    found[id(value)] = (str(Path(module_.__file__).relative_to(ROOT)), attribute), table
    return found


class Direct:
    """``Database`` that works on the caller's thread, so that a statement's stack leads to who asked for it."""

    def __init__(self, db: Database) -> None:
        self.engine, self.dialect = db.engine, db.dialect

    def read(self, function: Callable[[Connection], T]) -> T:
        with self.engine.connect() as connection:
            return function(connection)

    def write(self, function: Callable[[Connection], T]) -> T:
        with self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                result = function(connection)
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")
            return result

    write_one = write


def _places() -> Iterator[tuple[str, str]]:
    """Files and functions, or constants, on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        code: CodeType = frame.f_code
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT):
            yield str(path.relative_to(ROOT)), code.co_qualname.split(".<locals>")[0]
            asked = frame.f_locals.get("self")
            if isinstance(asked, Write) and id(asked) in _constants():
                yield _constants()[id(asked)][0]
        if frame.f_back is None:
            return
        frame = frame.f_back


@pytest.fixture(scope="module")
def sent(hasty_sqlite: Database) -> dict[Site, set[str]]:
    """What each place sends while every write of every state runs there alone."""
    found: dict[Site, set[str]] = defaultdict(set)

    def note(conn: Connection, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("UPDATE "):
            for place in _places():
                found[(*place, statement.split()[1])].add(" ".join(statement.split()))

    direct = World(cast(Database, Direct(hasty_sqlite)))
    for state, (firsts, seconds) in STATES.items():
        for name in sorted({*firsts, *seconds}):
            direct.empty()
            state(direct)
            event.listen(hasty_sqlite.engine, "before_cursor_execute", note)
            try:
                WRITES[name](direct)
            except (SandloomError, LostRace):
                pass
            finally:
                event.remove(hasty_sqlite.engine, "before_cursor_execute", note)
    return found


def test_every_update_meets_others_in_an_interleaving(sent: dict[Site, set[str]]):
    alone = {site: (number, len(sent[site])) for site, number in sites().items() if len(sent[site]) < number}
    assert not alone, f"no state of pairs.py reaches these: (written, reached) {alone}"


def test_no_assignment_reads_a_column_that_was_assigned_before_it(sent: dict[Site, set[str]]):
    """MariaDB and MySQL assign from left to right; the others read every column as it was."""
    bad = []
    for statement in sorted({text for texts in sent.values() for text in texts}):
        bad += [f"{statement}: {name}" for name in read_after_assigned(statement)]
    assert not bad


def test_every_move_of_a_sandbox_says_when_maintenance_looks_at_it(sent: dict[Site, set[str]]):
    """Except to READY from ASSIGNED, where less falls due than before."""
    moves = {
        text
        for texts in sent.values()
        for text in texts
        if text.startswith("UPDATE sandboxes ")
        and " status_us=" in text
        and " ready_us=" not in text.split(" WHERE ")[0]
    }
    assert len(moves) > 10
    assert not [text for text in moves if " look_us=" not in text]


def read_after_assigned(statement: str) -> list[str]:
    table = statement.split()[1]
    parts = _ASSIGNED.split(_outermost_values(statement))[1:]
    before: set[str] = set()
    bad = []
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        bad += [read for read in re.findall(rf"\b{table}\.(\w+)", value) if read in before]
        before.add(name)
    return bad


def _outermost_values(statement: str) -> str:
    """What stands between SET and its WHERE."""
    rest = statement.partition(" SET ")[2]
    depth = 0
    for place, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and rest.startswith(" WHERE ", place):
            return rest[:place]
    return rest


def test_the_check_of_assignments_finds_one_that_is_out_of_order():
    assert read_after_assigned("UPDATE t SET a=1, b=CASE WHEN (t.a = 2) THEN 3 ELSE t.b END WHERE t.c = 4") == ["a"]
    assert read_after_assigned("UPDATE t SET b=CASE WHEN (t.a = 2) THEN 3 ELSE t.b END, a=1 WHERE t.a = 4") == []
