"""What toolchains put into the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandloom.execution import environment
from sandloom.execution.toolchains import TOOLCHAINS, ToolchainRequest, environment_of
from sandloom.settings import Settings
from sandloom.settings.toolchains import TOOLCHAINS as NAMES


def test_the_settings_know_the_same_toolchains():
    assert tuple(TOOLCHAINS) == NAMES


@pytest.mark.parametrize("name", TOOLCHAINS)
def test_callers_may_set_nothing_that_a_toolchain_sets(name):
    request = ToolchainRequest((name,), python_index_url="x", npm_registry="x", go_proxy="x", go_sumdb="x")
    assert not [found for found in environment_of(request, {}) if not environment.reserved_name(found)]


@pytest.mark.parametrize("name", TOOLCHAINS)
def test_caches_and_installs_stay_with_the_sandbox(name):
    for value in TOOLCHAINS[name].env.values():
        assert not value.startswith("/") or value.startswith(("/cache/", "/envs/."))


def test_path_follows_the_order_of_the_setting_and_launchers_go_first():
    path = environment_of(ToolchainRequest(("go", "python")), {"python": ["/launch"]})["PATH"]
    assert path == f"/envs/.go/bin:/launch:/envs/.python/bin:{environment.PATH}"
    assert "PATH" not in environment_of(ToolchainRequest(("java",)), {})


def test_a_request_is_taken_from_settings_with_its_limits():
    settings = Settings.load(
        {
            "SANDBOX_TOOLCHAINS": "go",
            "SANDBOX_GO_PROXY": "https://go",
            "SANDBOX_JAVA_HOME": "/opt/java",
            "SANDBOX_MAX_PROCESSES": "99",
        }
    )
    request = ToolchainRequest.of(settings)
    assert (request.toolchains, request.java_home) == (("go",), Path("/opt/java"))
    assert request.limits.max_processes == 99
    assert environment_of(request, {})["GOPROXY"] == "https://go"


def test_mirrors_are_named_as_the_toolchains_want_it():
    request = ToolchainRequest((), python_index_url="https://mirror/simple", npm_registry="https://npm")
    assert environment_of(request, {}) == {
        "PIP_INDEX_URL": "https://mirror/simple",
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "npm_config_registry": "https://npm",
    }
