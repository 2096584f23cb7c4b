"""What other people named cannot change a terminal."""

from __future__ import annotations

import json

import pytest

from sandloom.cli.invocation import Stop
from sandloom.cli.output import cell_text, print_json, print_table, printable

HOSTILE = "a\x1b]0;title\x07\x9b31m\u202egnp.exe\u2028\udcff\n\tü"


def test_whatever_is_not_printed_is_escaped() -> None:
    assert printable("grüße 漢字 x") == "grüße 漢字 x"
    assert printable(HOSTILE) == r"a\x1b]0;title\x07\x9b31m\u202egnp.exe\u2028\udcff\n\tü"
    assert cell_text(["x\r", 1, None]) == r"x\r 1 None"


def test_tables_errors_and_json_are_safe_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [{"name": HOSTILE}])
    Stop(f"{HOSTILE} is not there").show()
    print_json({"name": HOSTILE})
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert all(each.isprintable() or each == "\n" for each in text)
    table, document = shown.out.split("\n{", 1)
    assert len(table.splitlines()) == 2
    assert json.loads("{" + document) == {"name": HOSTILE}
