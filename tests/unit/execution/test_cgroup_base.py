"""Delegation with version 2, on a tree of ordinary files that stands for a kernel this test may not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandloom.execution import cgroup_base, cgroup_layout
from sandloom.execution.spec import BudgetsUnavailable


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    (tmp_path / "cgroup.procs").write_text("")
    made = tmp_path / "sandloom-w"
    made.mkdir()
    (made / "cgroup.subtree_control").write_text("")
    return tmp_path


def test_controllers_are_passed_down_twice(own: Path) -> None:
    base = cgroup_base.make_2(str(own), "w")
    assert set(base.directories) == {"memory", "pids", "cpu"}
    assert set(base.directories.values()) == {str(own / "sandloom-w")}
    for place in (own, own / "sandloom-w"):
        assert (place / "cgroup.subtree_control").read_text().strip() == "+memory +pids +cpu"


def test_a_group_that_is_not_the_root_must_be_delegated(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "cgroup.type").write_text("domain\n")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(BudgetsUnavailable, match="was not delegated"):
        cgroup_base.make_2(str(own), "w")
    assert not (own / cgroup_layout.MAIN).exists()


def test_the_owner_who_is_not_root_may_make_room(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "cgroup.type").write_text("domain\n")
    (own / cgroup_layout.MAIN).mkdir()
    (own / cgroup_layout.MAIN / "cgroup.procs").write_text("")
    (own / "cgroup.procs").write_text("123\n")
    monkeypatch.setattr("os.geteuid", lambda: own.stat().st_uid or 1)
    if own.stat().st_uid == 0:
        monkeypatch.setattr("sandloom.execution.cgroup_base._delegated", lambda _: True)
    cgroup_base.make_2(str(own), "w")
    assert (own / cgroup_layout.MAIN / "cgroup.procs").read_text() == "123"


def test_controllers_that_are_there_already_need_no_room(own: Path) -> None:
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert set(cgroup_base.make_2(str(own), "w").directories) == {"memory", "pids", "cpu"}


def test_what_is_missing_is_named(own: Path) -> None:
    (own / "cgroup.controllers").write_text("cpu pids\n")
    base = cgroup_base.make_2(str(own), "w")
    assert list(base.missing) == ["memory"]
    (own / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(BudgetsUnavailable, match="memory"):
        cgroup_base.make_2(str(own), "w")
