"""Database, broker, bus, registry and object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, SecretStr

from sandloom.settings.fields import GIB, Group, setting
from sandloom.settings.urls import sync_database_url


class Backends(Group):
    database_url: Annotated[str, AfterValidator(sync_database_url)] = setting(
        "sqlite:////var/lib/sandloom/sandloom.db",
        "SQLAlchemy URL: `sqlite:///`, `postgresql+psycopg2://`, `mariadb+pymysql://` or `mysql+pymysql://`. The async "
        "drivers `+asyncpg`, `+aiosqlite`, `+aiomysql` are mapped to the sync ones.",
        shown="SQLite file `sandloom.db` in DATA_DIR",
    )
    database_auto_ddl: bool = setting(
        True,
        "Bring the schema up to date at start. False: refuse with exit code 3 when something lacks.",
        shown="true for SQLite, else false",
    )
    database_pool_size: int = setting(16, "Connections one process keeps at most.", ge=2, le=500)
    broker_url: str = setting(
        "memory://",
        "Celery broker: `redis://` or `amqp://`; `memory://` is the embedded mode's.",
        pattern=r"^(memory|sandloom-memory|redis|rediss|amqp|amqps|pyamqp)://",
    )
    broker_namespace: str = setting(
        "sandloom",
        "Prefix of this deployment's broker keys, results and bus channels.",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
    )
    bus_url: str = setting(
        "memory://",
        "Where wake-ups and replies travel: `redis://`, or `memory://` in the embedded mode.",
        shown="BROKER_URL when that is Redis, else `memory://`",
        pattern=r"^(memory|redis|rediss)://",
    )
    result_backend: str | None = setting(
        None,
        "Celery result backend for direct clients.",
        shown="BROKER_URL or else BUS_URL, when that is Redis",
    )
    registry_backend: str = setting(
        "memory",
        "Where workers say how busy they are: `memory` (to their own process alone), `redis`, or an entry point. It "
        "only decides between workers with the same share of their slots taken.",
        min_length=1,
    )
    registry_namespace: str = setting("agent-sandbox", "Prefix of the registry's keys.", min_length=1, max_length=64)
    redis_url: str = setting("redis://127.0.0.1:6379/0", "Used by the registry only.")


class Objects(Group):
    object_store_backend: str = setting(
        "auto", "`auto` (S3 when a bucket is named), `s3`, `disabled`, or an entry point.", min_length=1
    )
    blobstore_endpoint: str | None = setting(None, "S3 endpoint. BLOBSTORE_* are also read without the prefix.")
    blobstore_bucket: str | None = setting(
        None,
        "S3 bucket, made when missing; 3 to 63 lower-case letters, digits, `.` and `-`.",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
    )
    blobstore_base_prefix: str = setting("agent-sandbox/", "Prefix of every object.")
    blobstore_region: str = setting("us-east-1", "S3 region.")
    blobstore_access_key: SecretStr = setting(SecretStr(""), "S3 access key; empty: the boto3 chain.")
    blobstore_secret_key: SecretStr = setting(SecretStr(""), "S3 secret key.")


class Templates(Group):
    template_root: Path | None = setting(None, "Unpacked templates.", shown="beside the workspace root")
    template_cache_max_bytes: int | None = setting(None, "Bound of the unpacked templates.", ge=0)
    template_max_extract_bytes: int = setting(8 * GIB, "Largest unpacked template.", ge=1)
    template_max_archive_bytes: int = setting(4 * GIB, "Largest template archive.", ge=1)
    template_snapshot_max_entries: int = setting(200000, "Most entries of a template.", ge=1)
    template_snapshot_max_depth: int = setting(128, "Deepest directory of a template.", ge=1)
    template_snapshot_timeout_seconds: int = setting(600, "Longest time for building a template.", ge=1)
