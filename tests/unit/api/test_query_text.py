"""A query that is not UTF-8 is refused: decoded with replacements it would name another file."""

from __future__ import annotations

import pytest

from api.validation import check_query_text
from sandloom.errors import MalformedRequest


@pytest.mark.parametrize("query", [b"path=/workspace/%ff", b"path=/workspace/%ed%a0%80", b"search=\xff"])
def test_what_is_not_utf8_is_refused(query: bytes) -> None:
    with pytest.raises(MalformedRequest):
        check_query_text(query)


def test_utf8_passes_escaped_or_not() -> None:
    check_query_text("path=/workspace/ä&x=%C3%A4%25ff".encode())
