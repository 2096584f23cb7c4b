"""Full at the high mark, and until the low one."""

from __future__ import annotations

from sandloom.execution.workspace import Space
from sandloom.settings import Settings
from workers.watermarks import Watermarks

SETTINGS = Settings.load(
    {
        "SANDBOX_DISK_HIGH_WATERMARK_PERCENT": "80",
        "SANDBOX_MIN_FREE_BYTES": "100",
        "SANDBOX_MIN_FREE_INODES": "1000",
        "SANDBOX_BROKER_URL": "redis://127.0.0.1:1",
    }
)


def space(free_bytes: int, free_inodes: int = 5000, total_bytes: int = 1000, total_inodes: int = 10_000) -> Space:
    return Space(total_bytes, free_bytes, total_inodes, free_inodes)


def test_by_fill() -> None:
    marks = Watermarks(SETTINGS)
    found = [marks.measure(space(free)) for free in (201, 200, 230, 239, 241, 201)]
    assert found == [None, "disk", "disk", "disk", None, None]


def test_by_what_is_free() -> None:
    marks = Watermarks(SETTINGS)
    large = 400
    assert [marks.measure(space(free, total_bytes=large)) for free in (100, 99, 124, 125)] == [
        None,
        "disk",
        "disk",
        None,
    ]


def test_by_inodes() -> None:
    marks = Watermarks(SETTINGS)
    assert [marks.measure(space(900, free)) for free in (1000, 999, 1249, 1250)] == [None, "inodes", "inodes", None]


def test_a_file_system_that_counts_no_inodes_is_never_short_of_them() -> None:
    assert Watermarks(SETTINGS).measure(space(900, 0, total_inodes=0)) is None
