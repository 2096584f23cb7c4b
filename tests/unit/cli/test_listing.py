"""Lists of the command line, over pages of the service."""

from __future__ import annotations

import pytest

from sandloom.cli.listing import first


class Rows:
    """A list that has ``added`` new rows in front after each page."""

    def __init__(self, rows: range, added: int = 0) -> None:
        self.rows = list(rows)
        self.added = added

    def __call__(self, *, limit: int, offset: int) -> list[int]:
        assert 1 <= limit <= 200
        page = self.rows[offset : offset + limit]
        self.rows = [*range(-self.added - len(self.rows), -len(self.rows)), *self.rows]
        return page


@pytest.mark.parametrize(
    ("limit", "count", "more"), [(1, 1, True), (199, 199, True), (200, 200, True), (449, 449, True), (450, 450, False)]
)
def test_a_limit_is_kept_over_pages_and_lists_and_what_lies_behind_is_known(limit: int, count: int, more: bool) -> None:
    rows, left = first([Rows(range(400)), Rows(range(0)), Rows(range(400, 450))], str, limit)
    assert (rows, left) == (list(range(count)), more)


def test_what_moves_on_while_others_are_added_is_there_once() -> None:
    rows, more = first([Rows(range(300), added=7)], str, 1000)
    assert sorted(row for row in rows if row >= 0) == list(range(300))
    assert (len(rows) == len(set(rows)), more) == (True, False)
