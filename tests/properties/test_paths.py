"""Whatever a client writes as a path: it is refused, or it names one place inside a root."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.paths import MAX_NAME_BYTES, MAX_PATH_BYTES, READABLE_ROOTS, parse_path
from sandloom.execution.sandbox_directory import decode_name, encode_name
from tests.unit.execution_files.people import kind_of

COMPONENTS = st.one_of(
    st.sampled_from(
        ["", ".", "..", "...", "workspace", "home", "etc", "a", "\x00", "\udc80", "\ud800", "é", "a" * 256]
    ),
    st.text(max_size=12),
)
PATHS = st.one_of(
    st.text(max_size=60),
    st.builds(lambda parts: "/" + "/".join(parts), st.lists(COMPONENTS, max_size=8)),
    st.builds(lambda parts: "/workspace/" + "/".join(parts), st.lists(COMPONENTS, max_size=8)),
)


@given(PATHS, st.booleans())
def test_a_path_is_refused_or_lies_below_a_root(text: str, change: bool) -> None:
    if kind_of(lambda: parse_path(text, change=change)) is not None:
        assert kind_of(lambda: parse_path(text, change=change)) is FaultKind.PATH_INVALID
        return
    path = parse_path(text, change=change)
    assert path.root in (("workspace",) if change else READABLE_ROOTS)
    assert all(part not in (b"", b".", b"..") for part in path.parts)
    assert not any(b"/" in part or b"\0" in part or len(part) > MAX_NAME_BYTES for part in path.parts)
    resolved = os.path.normpath(b"/".join([b"/" + path.root.encode(), *path.parts]))
    assert resolved == os.fsencode(f"/{path.root}") + b"".join(b"/" + part for part in path.parts)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=6))
def test_every_name_that_a_file_system_can_hold_has_a_path(parts: list[bytes]) -> None:
    clean = [part.replace(b"/", b"_").replace(b"\0", b"_") for part in parts]
    clean = [part for part in clean if part not in (b".", b"..")]
    text = b"/".join([b"/workspace", *clean]).decode("utf-8", "surrogateescape")
    path = parse_path(text)
    assert path.parts == tuple(clean)
    path.text.encode()  # the text for people has no surrogates
    assert parse_path(f"{text}/") == path


@given(st.lists(st.sampled_from([b"a", b"b"]), max_size=4), st.lists(st.sampled_from([b"a", b"b"]), max_size=4))
def test_a_path_is_within_another_when_it_goes_through_it(first: list[bytes], second: list[bytes]) -> None:
    outer = parse_path("/workspace/" + b"/".join(first).decode()) if first else parse_path("/workspace")
    inner = outer
    for part in second:
        inner = inner.child(part)
    assert inner.within(outer)
    assert outer.within(inner) == (not second)


@given(st.integers(MAX_PATH_BYTES - 20, MAX_PATH_BYTES + 20), st.sampled_from(["a/", "é/", "\udc80/"]))
def test_the_length_counts_bytes(size: int, unit: str) -> None:
    text = ("/workspace/" + unit * size)[:size].rstrip("/")
    too_long = len(text.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES
    if too_long:
        with pytest.raises(FileFault):
            parse_path(text)
    else:
        assert parse_path(text).root == "workspace"


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_directory_names_are_injective_and_harmless(first: str, second: str) -> None:
    names = [encode_name("s", value.encode("utf-8", "replace").decode()) for value in (first, second)]
    values = [value.encode("utf-8", "replace").decode() for value in (first, second)]
    assert [decode_name("s", name) for name in names] == values
    assert (names[0] == names[1]) == (values[0] == values[1])
    assert all("/" not in name and name.startswith("s-") for name in names)


@given(st.text(max_size=40))
def test_a_foreign_directory_name_decodes_to_nothing_or_is_ours(name: str) -> None:
    value = decode_name("s", name)
    assert value is None or encode_name("s", value) == name
