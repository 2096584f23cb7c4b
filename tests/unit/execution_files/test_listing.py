from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandloom.execution import listing
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.listing import Page
from tests.unit.execution_files.people import GID, UID, kind_of


def fill(directory: Path, count: int) -> set[str]:
    fd = os.open(directory, os.O_RDONLY)
    names = {f"entry-{number:06d}-{'n' * (number % 40)}" for number in range(count)}
    for name in names:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))
    os.close(fd)
    return names


def pages(files: SandboxFiles, path: str, limit: int) -> list[Page]:
    found = [files.listing(path, limit)]
    while found[-1].cursor is not None:
        found.append(files.listing(path, limit, cursor=found[-1].cursor))
    return found


def names_of(found: list[Page]) -> list[str]:
    return [entry.name for page in found for entry in page.entries]


def test_an_empty_directory(files: SandboxFiles) -> None:
    assert files.listing("/workspace", 10) == Page([], total=0, has_more=False, cursor=None)
    assert files.listing("/home", 10, offset=5) == Page([], total=0, has_more=False, cursor=None)


def test_a_small_directory_comes_sorted(files: SandboxFiles, workspace: Path) -> None:
    for name in ("b", "a", "c", "B", "é", ".hidden"):
        (workspace / name).write_text(name)
    (workspace / "d").mkdir()
    (workspace / "l").symlink_to("d")
    page = files.listing("/workspace", 100)
    assert [entry.name for entry in page.entries] == [".hidden", "B", "a", "b", "c", "d", "l", "é"]
    assert {entry.name: entry.type for entry in page.entries}["l"] == "symlink"
    assert (page.total, page.has_more, page.cursor) == (8, False, None)


@pytest.mark.parametrize("directory", ["plain", "odd\udcff"])
def test_entries_are_described_as_each_alone_is(files: SandboxFiles, workspace: Path, directory: str) -> None:
    top = workspace / directory
    top.mkdir()
    for name in ("a", "é", "odd\udc80", "new\nline"):
        (top / name).write_text(name, errors="surrogateescape")
    (top / "d").mkdir(0o750)
    os.mkfifo(top / "fifo")
    os.utime(top / "a", (10**11, -5))
    os.chmod(top / "a", 0o4640)
    found = files.listing(f"/workspace/{directory}", 100).entries
    assert found == [files.stat(f"/workspace/{directory}/{name}") for name in sorted(os.listdir(top), key=os.fsencode)]
    assert {entry.name_base64 is None for entry in found} == {True, False}
    assert {entry.path_base64 is None for entry in found} == ({True, False} if directory == "plain" else {False})


@pytest.mark.parametrize("limit", [1, 7, 25, 26])
def test_pages_by_cursor_and_by_offset_are_the_same(files: SandboxFiles, workspace: Path, limit: int) -> None:
    names = sorted(fill(workspace, 25))
    by_cursor = pages(files, "/workspace", limit)
    assert names_of(by_cursor) == names
    by_offset = [files.listing("/workspace", limit, offset=at) for at in range(0, 25, limit)]
    assert by_offset == by_cursor
    assert [page.has_more for page in by_cursor] == [True] * (len(by_cursor) - 1) + [False]
    assert {page.total for page in by_cursor} == {25}


def test_changes_between_pages_do_not_shift_the_rest(files: SandboxFiles, workspace: Path) -> None:
    names = sorted(fill(workspace, 20))
    first = files.listing("/workspace", 5)
    for name in names[:5]:
        (workspace / name).unlink()
    (workspace / "another").write_text("")
    rest = files.listing("/workspace", 100, cursor=first.cursor)
    assert [entry.name for entry in rest.entries] == names[5:]


def test_twenty_thousand_entries_come_exactly_once(files: SandboxFiles, workspace: Path) -> None:
    names = fill(workspace, 20_000)
    found = pages(files, "/workspace", 1000)
    assert sorted(names_of(found)) == sorted(names)
    assert {page.total for page in found} == {None}
    assert [page.has_more for page in found] == [True] * (len(found) - 1) + [False]
    by_offset = [files.listing("/workspace", 1000, offset=at) for at in range(0, 20_000, 1000)]
    assert sorted(names_of(by_offset)) == sorted(names)
    assert files.listing("/workspace", 10, offset=20_000).entries == []


def test_a_large_directory_that_loses_entries_still_shows_the_rest_once(
    files: SandboxFiles, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SORTED_ENTRIES", 50)
    names = fill(workspace, 400)
    first = files.listing("/workspace", 100)
    seen = {entry.name for entry in first.entries}
    gone = set(sorted(names)[::2])
    for name in gone:
        (workspace / name).unlink()
    cursor, rest = first.cursor, []
    while cursor is not None:
        page = files.listing("/workspace", 30, cursor=cursor)
        rest += [entry.name for entry in page.entries]
        cursor = page.cursor
    assert sorted(rest) == sorted(names - gone - seen)


def test_a_directory_may_grow_past_the_bound_between_pages(
    files: SandboxFiles, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SORTED_ENTRIES", 50)
    before = fill(workspace, 40)
    first = files.listing("/workspace", 10)
    assert first.total == 40
    for number in range(100):
        (workspace / f"entry-1{number:05d}").write_text("")
    found, cursor = names_of([first]), first.cursor
    while cursor is not None:
        page = files.listing("/workspace", 10, cursor=cursor)
        assert page.total is None
        found += names_of([page])
        cursor = page.cursor
    assert found == sorted(found)
    assert before <= set(found)
    assert len(found) == len(set(found)) == 140


@pytest.mark.parametrize(
    "cursor", ["", "x", "!!!!", "é", "bg", "cC0x", "cDk5OTk5OTk5OTk5OTk5OTk5OTk5OQ", "cA", "cGE", "cDEuNQ", "eA=="]
)
def test_a_cursor_that_no_listing_gave_is_refused_or_harmless(files: SandboxFiles, cursor: str) -> None:
    assert kind_of(lambda: files.listing("/workspace", 10, cursor=cursor)) in (None, FaultKind.CURSOR_INVALID)


def test_a_forged_position_shows_entries_of_this_directory_only(files: SandboxFiles, workspace: Path) -> None:
    names = fill(workspace, 300)
    for position in (1, 12345, 1 << 40, (1 << 63) - 1):
        cursor = listing._encode("p", str(position).encode())
        page = files.listing("/workspace", 10, cursor=cursor)
        assert {entry.name for entry in page.entries} <= names


def test_the_limit_is_that_of_the_deployment(files: SandboxFiles, workspace: Path) -> None:
    fill(workspace, 1100)
    assert len(files.listing("/workspace", 5000).entries) == files.limits.max_list_entries == 1000
    assert len(files.listing("/workspace", -5, offset=-5).entries) == 1


def test_files_are_not_listed(files: SandboxFiles) -> None:
    files.write("/workspace/a", b"")
    with pytest.raises(FileFault) as caught:
        files.listing("/workspace/a", 10)
    assert caught.value.kind is FaultKind.WRONG_KIND


@pytest.mark.root
def test_a_closed_directory_is_said(files: SandboxFiles, workspace: Path) -> None:
    (workspace / "d").mkdir()
    os.chown(workspace / "d", UID, GID)
    (workspace / "d").chmod(0o300)
    with pytest.raises(FileFault) as caught:
        files.listing("/workspace/d", 10)
    assert caught.value.kind is FaultKind.ACCESS
