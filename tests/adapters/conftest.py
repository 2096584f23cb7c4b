"""Run by tests/acceptance/client/test_adapters.py in an environment that has the packages, against its service."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from sandloom.sdk import Client, Sandbox

if importlib.util.find_spec("inspect_ai") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Client.from_env() as opened:
        yield opened


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(scope="adapters") as opened:
        yield opened
