"""A database URL whose driver is not installed."""

from __future__ import annotations

import sys

import pytest

from sandloom.db import open_database
from sandloom.errors import DatabaseDriverMissing


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("mariadb+pymysql://u:secret@h/d", "pymysql", "mysql"),
        ("mysql+pymysql://u:secret@h/d", "pymysql", "mysql"),
        ("postgresql+psycopg2://u:secret@h/d", "psycopg2", "server"),
    ],
)
def test_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DatabaseDriverMissing, match=rf"sandloom\[{extra}\]") as missing:
        open_database(url)
    assert "secret" not in str(missing.value)
    assert missing.value.exit_code == 2
