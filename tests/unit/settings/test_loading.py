"""From variables to settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sandloom.errors import SettingsInvalid
from sandloom.settings import Settings

TOKEN = "a-token-that-must-not-show"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    dotenv = tmp_path / ".env"
    dotenv.write_text("SANDBOX_PORT=9001\nSANDBOX_ZONE='from file'\nOTHER=1\n")
    settings = Settings.load({"SANDBOX_PORT": "9002"}, dotenv=dotenv)
    assert (settings.port, settings.zone) == (9002, "from file")
    assert (settings.origins["port"], settings.origins["zone"]) == ("environment", ".env")


def test_options_win_over_the_environment_and_none_is_no_option() -> None:
    settings = Settings.load({"SANDBOX_PORT": "9002"}, options={"port": 9003, "host": None})
    assert (settings.port, settings.origins["port"], settings.origins["host"]) == (9003, "option", "default")


@pytest.mark.parametrize("text", ["go,python", " go , python ,", '["go", "python"]'])
def test_a_list_is_commas_or_a_json_array(text: str) -> None:
    assert Settings.load({"SANDBOX_TOOLCHAINS": text}).toolchains == ("go", "python")


@pytest.mark.parametrize("text", ["[1]", "[", '["a", ["b"]]'])
def test_a_json_array_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="SANDBOX_NO_PROXY"):
        Settings.load({"SANDBOX_NO_PROXY": text})


def test_an_empty_list_is_a_value_and_an_empty_text_is_none() -> None:
    settings = Settings.load({"SANDBOX_NO_PROXY": "", "SANDBOX_WORKER_ID": "", "SANDBOX_PORT": " "})
    assert (settings.no_proxy, settings.worker_id, settings.port) == ((), None, 8080)


def test_all_problems_come_at_once_by_name_and_without_values() -> None:
    values = {
        "SANDBOX_PORT": "70000",
        "SANDBOX_WORKER_CAPACITY": "secret-looking",
        "SANDBOX_ISOLATION_LEVEL": "secret-looking",
        "SANDBOX_TOOLCHAINS": "secret-looking",
        "SANDBOX_DATABASE_URL": "oracle://secret-looking",
        "SANDBOX_BLOBSTORE_BUCKET": "Secret_looking",
    }
    with pytest.raises(SettingsInvalid) as caught:
        Settings.load(values)
    assert len(caught.value.extra["problems"]) == len(values)
    assert all(name in caught.value.detail for name in values)
    assert "secret-looking" not in caught.value.detail
    assert "Secret_looking" not in caught.value.detail
    assert "70000" not in caught.value.detail


def test_an_unknown_name_is_a_warning_with_the_nearest_real_one() -> None:
    settings = Settings.load({"SANDBOX_WOKER_ID": "w", "SANDBOX_TEST_X": "1", "SANDBOX_BASE_URL": "http://h"})
    assert settings.warnings == ("SANDBOX_WOKER_ID is not a setting; did you mean SANDBOX_WORKER_ID?",)


def test_an_unknown_name_is_an_error_when_settings_are_strict() -> None:
    with pytest.raises(SettingsInvalid, match=r"SANDBOX_WOKER_ID.*SANDBOX_WORKER_ID"):
        Settings.load({"SANDBOX_WOKER_ID": "w", "SANDBOX_STRICT_SETTINGS": "true"})


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql+asyncpg://u:p@h/d?ssl=require", "postgresql+psycopg2://u:p@h/d?sslmode=require"),
        ("postgresql://h/d", "postgresql+psycopg2://h/d"),
        ("postgres://h/d", "postgresql+psycopg2://h/d"),
        ("sqlite+aiosqlite:////x.db", "sqlite:////x.db"),
        ("mysql+aiomysql://h/d", "mysql+pymysql://h/d"),
        ("postgresql+psycopg2://h/d", "postgresql+psycopg2://h/d"),
    ],
)
def test_async_drivers_become_sync_ones(given: str, used: str) -> None:
    assert Settings.load({"SANDBOX_DATABASE_URL": given}).database_url == used


def test_a_fleet_takes_its_bus_and_results_from_a_redis_broker() -> None:
    settings = Settings.load({"SANDBOX_BROKER_URL": "redis://h/1"})
    assert (settings.bus_url, settings.result_backend) == ("redis://h/1", "redis://h/1")
    rabbit = Settings.load({"SANDBOX_BROKER_URL": "amqp://h//"})
    assert (rabbit.bus_url, rabbit.result_backend) == ("memory://", None)


def test_the_embedded_mode_is_memory_and_loopback_whatever_the_broker_was(tmp_path: Path) -> None:
    settings = Settings.load({"SANDBOX_BROKER_URL": "redis://h/1"}).embedded(tmp_path)
    assert (settings.broker_url, settings.bus_url, settings.result_backend) == ("memory://", "memory://", None)
    assert settings.host == "127.0.0.1"
    assert settings.workspace_root == tmp_path / "workspaces"
    assert settings.database_url == f"sqlite:///{tmp_path}/sandloom.db"
    assert settings.replaced(port=1234).host == "127.0.0.1", "what a mode set must survive the next change"


def test_the_embedded_mode_keeps_a_host_that_was_set() -> None:
    assert Settings.load({"SANDBOX_HOST": "10.0.0.1"}).embedded().host == "10.0.0.1"


def test_ddl_is_automatic_for_sqlite_only() -> None:
    assert Settings.load({}).database_auto_ddl is True
    assert Settings.load({"SANDBOX_DATABASE_URL": "postgresql://h/d"}).database_auto_ddl is False
    explicit = {"SANDBOX_DATABASE_URL": "postgresql://h/d", "SANDBOX_DATABASE_AUTO_DDL": "true"}
    assert Settings.load(explicit).database_auto_ddl is True


def test_exec_slots_follow_the_capacity() -> None:
    assert Settings.load({"SANDBOX_WORKER_CAPACITY": "5"}).worker_exec_slots == 20
    both = {"SANDBOX_WORKER_CAPACITY": "5", "SANDBOX_WORKER_EXEC_SLOTS": "7"}
    assert Settings.load(both).worker_exec_slots == 7


def test_the_object_store_is_also_named_without_the_prefix() -> None:
    settings = Settings.load({"BLOBSTORE_BUCKET": "plain", "BLOBSTORE_REGION": "r", "SANDBOX_BLOBSTORE_REGION": "own"})
    assert (settings.blobstore_bucket, settings.blobstore_region) == ("plain", "own")


def test_settings_cannot_be_changed() -> None:
    settings = Settings.load({})
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


def test_no_secret_shows() -> None:
    values = {
        "SANDBOX_INTERNAL_TOKEN": TOKEN,
        "SANDBOX_SECRET_KEY": TOKEN,
        "SANDBOX_BLOBSTORE_SECRET_KEY": TOKEN,
        "SANDBOX_DATABASE_URL": f"postgresql://u:{TOKEN}@h/d?password={TOKEN}",
        "SANDBOX_BROKER_URL": f"redis://:{TOKEN}@h/0",
        "SANDBOX_HTTP_PROXIES": f"http://u:{TOKEN}@p1,http://u:{TOKEN}@p2",
        "SANDBOX_PYTHON_INDEX_URL": f"https://u:{TOKEN}@index/simple",
    }
    settings = Settings.load(values)
    shown = [str(settings), repr(settings), f"{settings}", *(str(settings.shown(name)) for name in settings.origins)]
    assert not [text for text in shown if TOKEN in text]
    assert settings.internal_token.get_secret_value() == TOKEN


def test_the_declared_hash_follows_the_sandbox_and_not_the_place() -> None:
    base = Settings.load({}).profile_hash
    assert len(base) == 16
    assert Settings.load({"SANDBOX_PORT": "1", "SANDBOX_WORKER_ID": "w", "SANDBOX_DATA_DIR": "/x"}).profile_hash == base
    assert Settings.load({"SANDBOX_TMPFS_BYTES": "2097152"}).profile_hash != base
    assert Settings.load({"SANDBOX_NETWORK_MODE": "isolated"}).profile_hash != base
    assert Settings.load({}).replaced(cpu_seconds=7).profile_hash != base
    assert Settings.load({"SANDBOX_PROFILE_HASH": "mine"}).profile_hash == "mine"
