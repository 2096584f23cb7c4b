"""Whatever bytes come as an archive: it is refused, or what it made lies below the directory."""

from __future__ import annotations

import itertools
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execution.archive_in import _parts
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.glob_pattern import GlobPattern
from sandloom.execution.tar_format import END, Member, MemberType, encode, padding
from sandloom.execution.tar_reader import TarReader
from tests.unit.execution_files.archives import archive, info, unpacked
from tests.unit.execution_files.people import kind_of


class Collected:
    """A sink that keeps everything; it refuses the names that an extraction refuses."""

    def __init__(self) -> None:
        self.members: list[tuple[Member, bytes]] = []

    def begin(self, member: Member) -> None:
        _parts(member.name, 128)
        self.members.append((member, b""))

    def data(self, piece: memoryview) -> None:
        member, content = self.members[-1]
        self.members[-1] = (member, content + bytes(piece))

    def end(self) -> None:
        assert len(self.members[-1][1]) == self.members[-1][0].size_bytes


def read(data: bytes, cuts: list[int]) -> list[tuple[Member, bytes]]:
    sink = Collected()
    reader = TarReader(sink)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in itertools.pairwise(edges):
        reader.feed(data[begin:end])
    reader.finish()
    return sink.members


NAMES = st.lists(
    st.binary(min_size=1, max_size=255).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")),
    min_size=1,
    max_size=4,
).filter(lambda parts: not {b".", b".."} & set(parts))
CUTS = st.lists(st.integers(0, 30_000), max_size=12)
MEMBERS = st.lists(
    st.tuples(
        NAMES.map(b"/".join),
        st.binary(max_size=1500),
        st.integers(0, 0o777),
        st.integers(0, 8**11 - 1),
        st.binary(min_size=1, max_size=400).map(lambda target: target.replace(b"\0", b"_")),
        st.booleans(),
    ),
    max_size=5,
)


def member(name: bytes, data: bytes, mode: int, modified_seconds: int, target: bytes, link: bool) -> Member:
    if link:
        return Member(name, MemberType.SYMLINK, 0, mode, modified_seconds, target)
    return Member(name, MemberType.FILE, len(data), mode, modified_seconds)


@given(MEMBERS, CUTS)
def test_what_is_written_is_read_again_however_it_arrives(entries: list, cuts: list[int]) -> None:
    members = [(member(*entry), b"" if entry[5] else entry[1]) for entry in entries]
    data = b"".join(encode(made) + content + bytes(padding(len(content))) for made, content in members) + END
    assert read(data, cuts) == members
    theirs = unpacked(data)
    assert set(theirs) == {made.name.decode("utf-8", "surrogateescape") for made, _ in members}


TEXT_NAMES = st.one_of(
    st.text("ab./é\udc80", min_size=1, max_size=20), st.sampled_from(["../x", "/x", "a/../../x", "a" * 300, "."])
)


@given(
    st.lists(st.tuples(TEXT_NAMES, st.binary(max_size=700)), max_size=5),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    CUTS,
)
def test_other_writers_archives_are_read_or_refused(entries: list, form: int, cuts: list[int]) -> None:
    data = archive([(info(name), content) for name, content in entries], form)
    refusal = kind_of(lambda: read(data, cuts))
    if refusal is not None:
        assert refusal is FaultKind.ARCHIVE_INVALID
        assert any(name.startswith("/") or ".." in name.split("/") or len(name) > 255 for name, _ in entries)
        return
    found = read(data, cuts)
    assert [content for _, content in found] == [content for _, content in entries]


@given(st.binary(max_size=3000), CUTS)
def test_noise_is_refused(data: bytes, cuts: list[int]) -> None:
    if not any(data[:1024]) and len(data) >= 1024:
        return
    with pytest.raises(FileFault) as caught:
        read(data, cuts)
    assert caught.value.kind is FaultKind.ARCHIVE_INVALID


@given(st.data(), MEMBERS.filter(bool))
def test_damage_is_refused_or_harmless(data: st.DataObject, entries: list) -> None:
    whole = bytearray(archive([(name.decode("latin-1").strip("/") or "x", content) for name, content, *_ in entries]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    refusal = kind_of(lambda: read(bytes(whole), []))
    assert refusal in (None, FaultKind.ARCHIVE_INVALID, FaultKind.TOO_LARGE)


@given(st.lists(st.sampled_from(["**", "*", "a", "b", "?", "[ab]"]), min_size=1, max_size=5), NAMES)
def test_a_walk_follows_a_pattern_as_a_comparison_of_wholes_does(pattern: list[str], parts: list[bytes]) -> None:
    compiled = GlobPattern("/".join(pattern))

    def matches(at: int, below: int) -> bool:
        if at == len(pattern):
            return below == len(parts)
        if pattern[at] == "**":
            return any(matches(at + 1, further) for further in range(below, len(parts) + 1))
        return below < len(parts) and GlobPattern(pattern[at]).matches((parts[below],)) and matches(at + 1, below + 1)

    assert compiled.matches(tuple(parts)) == matches(0, 0)
