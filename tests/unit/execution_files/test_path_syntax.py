from __future__ import annotations

import pytest

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.paths import parse_path


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "workspace/a", "/etc/passwd", "/workspacex", "/workspace/../etc", "/workspace/./a", "/workspace//a",
        "//workspace", "/workspace/a//", "/workspace/a\0b", "/workspace/\ud800", "/workspace/" + "n" * 256,
        "/workspace" + "/a" * 2044, "/cache/a", "/workspace/..",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(FileFault) as caught:
        parse_path(text)
    assert caught.value.kind is FaultKind.PATH_INVALID
    caught.value.detail.encode()


@pytest.mark.parametrize("text", ["/home", "/home/a", "/envs/python/bin"])
def test_home_and_envs_are_for_reading(text: str) -> None:
    assert parse_path(text).root == text.split("/")[1]
    with pytest.raises(FileFault, match=r"below /workspace$"):
        parse_path(text, change=True)


def test_odd_bytes_are_written_as_lone_surrogates() -> None:
    assert parse_path("/workspace/\udcff\udc80").parts == (b"\xff\x80",)
    assert parse_path("/workspace/\udcff").text == "/workspace/\ufffd"


def test_one_slash_at_the_end_is_accepted() -> None:
    assert parse_path("/workspace/") == parse_path("/workspace")
    assert parse_path("/workspace/a/") == parse_path("/workspace/a")
