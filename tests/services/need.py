"""What a test needs and this machine may lack: a named skip at home, a failure in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def missing(what: str) -> NoReturn:
    """Skips the test that asked, naming ``what``; with ``CI=true`` fails it instead."""
    if in_ci():
        pytest.fail(f"CI must have it: {what}", pytrace=False)
    pytest.skip(f"missing: {what}")
