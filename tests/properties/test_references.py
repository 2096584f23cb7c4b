"""What clients may name as a template, and which digest is meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sandloom.contracts.templates import TemplateAttachBody
from sandloom.errors import TemplateConflict, TemplateNotFound
from sandloom.ids import TEMPLATE_NAME_PATTERN, is_template_name
from sandloom.templates.records import Template
from sandloom.templates.references import DIGEST_PREFIX, collect, parse, pinned

NAMES = st.from_regex(TEMPLATE_NAME_PATTERN, fullmatch=True)
DIGESTS = st.binary(min_size=32, max_size=32).map(lambda digest: DIGEST_PREFIX + digest.hex())


def template(name: str, revisions: list[str]) -> Template:
    return Template(name, revisions[-1], 1, "", revisions=dict.fromkeys(revisions, 1))


@given(NAMES, DIGESTS)
def test_a_reference_says_what_it_was_made_of(name: str, digest: str) -> None:
    assert parse(name) == (name, None)
    assert parse(f"{name}@{digest}") == (name, digest)
    wanted = TemplateAttachBody(generation=1, templates=[name, f"{name}@{digest}"])
    assert wanted.templates == [name, f"{name}@{digest}"]


@given(st.text(max_size=80) | st.tuples(st.text(max_size=8), st.text(max_size=80)).map("@".join))
def test_a_text_is_refused_or_names_a_directory_and_a_digest(text: str) -> None:
    try:
        TemplateAttachBody(generation=1, templates=[text])
    except ValidationError:
        return
    name, digest = parse(text)
    assert is_template_name(name)
    assert name not in (".", "..")
    assert "/" not in name
    assert digest is None or (len(digest) == 71 and set(digest[7:]) <= set("0123456789abcdef"))


@given(NAMES, st.lists(DIGESTS, min_size=1, max_size=5, unique=True), DIGESTS)
def test_a_pin_is_one_of_the_revisions_and_a_name_the_last(name: str, revisions: list[str], other: str) -> None:
    known = template(name, revisions)
    assert pinned(known, parse(name)) == revisions[-1]
    for digest in revisions:
        assert pinned(known, parse(f"{name}@{digest}")) == digest
    if other not in revisions:
        with pytest.raises(TemplateNotFound):
            pinned(known, parse(f"{name}@{other}"))
    with pytest.raises(TemplateNotFound):
        pinned(None, parse(name))
    assert Template.decode(known.encode()) == known


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2"])), max_size=8))
def test_a_list_is_a_set_or_two_revisions_of_a_name(found: list[tuple[str, str]]) -> None:
    doubled = len({name for name, _ in set(found)}) < len(set(found))
    if doubled:
        with pytest.raises(TemplateConflict, match=r"(1.*2|2.*1)"):
            collect(found)
        return
    chosen = collect(found)
    assert set(chosen.items()) == set(found)
    assert list(chosen) == sorted(chosen)
