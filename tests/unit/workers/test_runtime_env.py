"""What the deployment's settings put into the environment of commands."""

from __future__ import annotations

from sandloom.settings import Settings
from workers.runtime_env import RuntimeEnvironment


def test_without_settings_only_toolchains_are_there() -> None:
    assert RuntimeEnvironment(Settings.load({}), {"A": "1"}).next() == {"A": "1"}


def test_proxies_take_turns_and_exceptions_stay() -> None:
    settings = Settings.load({"SANDBOX_HTTP_PROXIES": "http://a:1,http://b:2", "SANDBOX_NO_PROXY": "localhost,x"})
    environment = RuntimeEnvironment(settings, {"A": "1"})
    taken = [environment.next() for _ in range(3)]
    assert [found["https_proxy"] for found in taken] == ["http://a:1", "http://b:2", "http://a:1"]
    assert all(found["no_proxy"] == found["NO_PROXY"] == "localhost,x" for found in taken)
    assert all(found["A"] == "1" for found in taken)
