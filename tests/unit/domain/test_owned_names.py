"""The API refuses the very names that the engine refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execs.owned_names import OWNED, OWNED_IN_ANY_CASE, OWNED_PREFIXES, owned_names
from sandloom.execution import environment

KNOWN = sorted(
    OWNED
    | OWNED_IN_ANY_CASE
    | environment._OWNED
    | environment._OWNED_ANY_CASE
    | environment._LOADER
    | {prefix + "X" for prefix in (*OWNED_PREFIXES, *environment._OWNED_PREFIXES, *environment._LOADER_PREFIXES)}
    | {name.lower() for name in environment._OWNED_ANY_CASE | environment._OWNED}
)


@pytest.mark.parametrize("name", KNOWN)
def test_api_and_engine_agree_on_each_name(name: str) -> None:
    assert (owned_names([name]) == [name]) == environment.reserved_name(name)


@given(st.text(alphabet="ABDLOPTUX_abd", min_size=1, max_size=10))
def test_and_on_others(name: str) -> None:
    assert (owned_names([name]) == [name]) == environment.reserved_name(name)
