from __future__ import annotations

from pathlib import Path

import pytest

from sandloom.execution import accounts
from sandloom.execution.accounts import Accounts


def test_ranges_are_read_from_both_files_and_odd_lines_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subuid").write_text("anna:100000:65536\n\nbroken\nbert:x:1\nempty:5:0\n")
    (tmp_path / "subgid").write_text("1000:200000:10\n")
    paths = (tmp_path / "subuid", tmp_path / "subgid", tmp_path / "missing")
    monkeypatch.setattr(accounts, "_SUBORDINATE_FILES", paths)
    assert Accounts.read().ranges == ((100000, 165535), (200000, 200009))


@pytest.mark.parametrize(("start", "end", "claimed"), [(1, 9, False), (1, 10, True), (20, 25, True), (21, 25, False)])
def test_a_range_is_claimed_when_it_overlaps(start: int, end: int, claimed: bool) -> None:
    found = Accounts(frozenset(), ((10, 20),), ask_system=False).conflict(start, end)
    assert (found is not None) == claimed
