"""The synchronous client is what its script makes of the asynchronous one."""

from __future__ import annotations

import pytest

from scripts.sync_sdk import SDK, SOURCES, synchronous


@pytest.mark.parametrize("name", SOURCES)
def test_it_was_made_from_what_is_there(name: str) -> None:
    assert (SDK / name).read_text(encoding="utf-8") == synchronous(name), "run: python -m scripts.sync_sdk"


def test_every_module_is_made_but_the_one_that_exists_twice() -> None:
    assert {path.name for path in (SDK / "aio").glob("*.py")} == {*SOURCES, "__init__.py", "waiting.py"}
