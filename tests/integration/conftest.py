"""Servers that stand still for a moment are not what these tests are about."""

from __future__ import annotations

import pytest

#: Each bounds an answer of a server that is there; one that is not refuses at once.
_TIMEOUTS = ("sandloom.broker.check", "sandloom.broker.cleaning", "sandloom.broker.rabbitmq", "sandloom.registry.redis")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in _TIMEOUTS:
        monkeypatch.setattr(f"{module}.TIMEOUT_SECONDS", 60.0)
