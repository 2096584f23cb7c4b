"""Secrets that a deployment did not name."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandloom.errors import SettingsInvalid
from sandloom.settings import SECRET_KEY_FILE, TOKEN_FILE, Role, Settings, load_secrets, read_token, server_settings
from sandloom.settings.secret_files import read_or_make


def _settings(data_dir: Path, **more: str) -> Settings:
    return Settings.load({"SANDBOX_DATA_DIR": str(data_dir), **more})


def test_they_are_made_once_private_and_reported_as_generated(tmp_path: Path) -> None:
    first = load_secrets(_settings(tmp_path / "data"))
    again = load_secrets(_settings(tmp_path / "data"))
    assert first.internal_token == again.internal_token
    assert first.secret_key == again.secret_key
    assert first.internal_token != first.secret_key
    assert first.origins["internal_token"] == "generated"
    assert read_token(tmp_path / "data") == first.internal_token.get_secret_value()
    for name in (TOKEN_FILE, SECRET_KEY_FILE):
        assert stat.S_IMODE((tmp_path / "data" / name).stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path / "data")) == sorted([TOKEN_FILE, SECRET_KEY_FILE]), "no draft stays behind"


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: read_or_make(tmp_path / "secret"), range(64)))
    assert len(set(texts)) == 1


def test_a_secret_that_was_given_is_used_and_no_file_made(tmp_path: Path) -> None:
    settings = load_secrets(_settings(tmp_path / "data", SANDBOX_INTERNAL_TOKEN="t", SANDBOX_SECRET_KEY="k"))
    assert settings.internal_token.get_secret_value() == "t"
    assert not (tmp_path / "data").exists()


def test_prod_never_generates(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"SANDBOX_INTERNAL_TOKEN.*SANDBOX_SECRET_KEY"):
        load_secrets(_settings(tmp_path / "data", SANDBOX_ENVIRONMENT="prod"))
    assert not (tmp_path / "data").exists()


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE).write_text("t\n")
    (tmp_path / TOKEN_FILE).chmod(0o644)
    with pytest.raises(SettingsInvalid, match="chmod 600"):
        load_secrets(_settings(tmp_path))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("t\n")
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / TOKEN_FILE).symlink_to("elsewhere")
    with pytest.raises(SettingsInvalid):
        load_secrets(_settings(tmp_path))


def test_an_unusable_directory_is_named_by_its_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsInvalid, match="SANDBOX_DATA_DIR"):
        load_secrets(_settings(tmp_path / "file" / "data"))


def test_a_start_makes_the_database_file_private(tmp_path: Path) -> None:
    server_settings({"SANDBOX_DATA_DIR": str(tmp_path / "data")}, Role.EMBEDDED)
    assert stat.S_IMODE((tmp_path / "data" / "sandloom.db").stat().st_mode) == 0o600
