"""What the deployment's settings put into the environment of commands."""

from __future__ import annotations

from sandloom.settings import Settings
from workers.runtime_env import RuntimeEnvironment


def test_without_settings_nothing_is_added() -> None:
    assert RuntimeEnvironment(Settings.load({})).next() == {}


def test_proxies_take_turns_and_exceptions_stay() -> None:
    settings = Settings.load({"SANDBOX_HTTP_PROXIES": "http://a:1,http://b:2", "SANDBOX_NO_PROXY": "localhost,x"})
    environment = RuntimeEnvironment(settings)
    taken = [environment.next() for _ in range(3)]
    assert [found["https_proxy"] for found in taken] == ["http://a:1", "http://b:2", "http://a:1"]
    assert all(found["no_proxy"] == found["NO_PROXY"] == "localhost,x" for found in taken)


def test_mirrors_are_named_as_the_toolchains_want_it() -> None:
    settings = Settings.load({"SANDBOX_PYTHON_INDEX_URL": "https://mirror/simple", "SANDBOX_GO_PROXY": "https://go"})
    assert RuntimeEnvironment(settings).next() == {
        "PIP_INDEX_URL": "https://mirror/simple", "UV_DEFAULT_INDEX": "https://mirror/simple", "GOPROXY": "https://go",
    }  # fmt: skip
