"""Names that callers may and may not set."""

from __future__ import annotations

import pytest

from sandloom.execution import environment
from sandloom.execution.spec import SpecInvalid

RESERVED = [
    "PATH", "HOME", "USER", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_ANYTHING", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH",
    "http_proxy", "HTTPS_PROXY", "No_Proxy", "npm_config_registry", "NPM_CONFIG_CACHE", "PIP_INDEX_URL", "GOPROXY",
    "CARGO_HOME", "JAVA_HOME", "SANDLOOM_TRACE", "PWD",
]  # fmt: skip
FREE = ["A", "PYTHONPATH", "NODE_OPTIONS", "LANG", "TZ", "MY_PATH", "path", "LDFLAGS", "DEBUG", "TMPDIR", "TERM"]


@pytest.mark.parametrize("name", RESERVED)
def test_reserved(name):
    assert environment.reserved_name(name)
    with pytest.raises(SpecInvalid, match=name):
        environment.build({name: "value"})


@pytest.mark.parametrize("name", FREE)
def test_free(name):
    assert not environment.reserved_name(name)
    assert environment.build({name: "value"})[name] == "value"


def test_the_runtime_may_set_what_it_owns_but_nothing_that_steers_the_loader():
    assert environment.build({}, {"HTTP_PROXY": "p"})["HTTP_PROXY"] == "p"
    with pytest.raises(SpecInvalid):
        environment.build({}, {"LD_PRELOAD": "x"})


@pytest.mark.parametrize("name", ["", "A=B", "A\0"])
def test_malformed_names(name):
    with pytest.raises(SpecInvalid):
        environment.build({name: "secret-value"})


def test_values_never_show():
    with pytest.raises(SpecInvalid) as refused:
        environment.build({"TOKEN": "secret-value\0"})
    assert "secret-value" not in str(refused.value)


def test_nothing_of_this_process_gets_in(monkeypatch):
    monkeypatch.setenv("SANDBOX_INTERNAL_TOKEN", "secret")
    assert "SANDBOX_INTERNAL_TOKEN" not in environment.build({})
