"""The deployment, its API and its logs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from sandloom.settings.fields import Group, TextList, setting


class General(Group):
    environment: Literal["local", "staging", "prod"] = setting(
        "local", "What this deployment is; `prod` generates no secrets and demands them instead."
    )
    zone: str = setting("local", "Label: the zone this process runs in.", max_length=64)
    region: str = setting("local", "Label: the region this process runs in.", max_length=64)
    strict_settings: bool = setting(False, "Makes an unknown `SANDBOX_*` name an error; otherwise it is a warning.")
    data_dir: Path = setting(
        Path("/var/lib/sandloom"),
        "Where the embedded mode keeps its files, and where generated secrets are kept (0600).",
        shown="`/var/lib/sandloom` as root, else `~/.local/share/sandloom`",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "The least severe line that is logged.")
    log_format: Literal["auto", "json", "console"] = setting(
        "auto", "Form of the log on standard error; `auto` is `console` on a terminal, else `json`."
    )
    telemetry_sink: str | None = setting(None, "Entry point in `agent_sandbox.telemetry_sinks`.")


class Api(Group):
    host: str = setting(
        "0.0.0.0",
        "Address the API binds; `up` and `demo` bind 127.0.0.1 unless it is set.",
        min_length=1,
    )
    port: int = setting(8080, "Port of the API.", ge=1, le=65535)
    internal_token: SecretStr = setting(
        SecretStr(""),
        "The operator's bearer token. Empty: an error in `prod`; elsewhere one is generated and kept in DATA_DIR.",
        shown="generated in DATA_DIR; required in `prod`",
    )
    internal_token_previous: SecretStr = setting(SecretStr(""), "Also accepted, for a rotation.")
    secret_key: SecretStr = setting(
        SecretStr(""),
        "Signs the messages between API and workers and seals secrets at rest; the same for all parts of a fleet.",
        shown="generated in DATA_DIR; required in `prod`",
    )
    api_threads: int = setting(64, "Threads for short calls in one API process.", ge=2, le=1024)
    max_streams: int = setting(512, "Event streams one API process serves at once.", ge=1, le=20000)
    max_waits: int = setting(256, "Foreground commands and long polls one API process holds at once.", ge=1, le=20000)
    max_foreground_wait_seconds: int = setting(
        300, "Longest wait for a foreground command; then the answer is 202.", ge=1, le=3600
    )
    mcp_allowed_hosts: TextList = setting(
        ("localhost", "localhost:*", "127.0.0.1", "127.0.0.1:*", "test"),
        "Names under which the MCP endpoint is served, and whose pages may use it; `name:*` is any port.",
    )
    tenant_rate_limit: str = setting(
        "",
        """The most calls of one tenant's keys to the API, as `100/second;5000/minute` (second, minute, hour, day);
        empty is any. Counted over all API processes in the Redis of BUS_URL.""",
        pattern=r"^([1-9][0-9]{0,8}/(second|minute|hour|day)(;[1-9][0-9]{0,8}/(second|minute|hour|day)){0,3})?$",
        max_length=200,
    )
    direct_tasks: Literal["signed", "off"] = setting(
        "signed", "Whether clients may send tasks straight to the broker, signed by their API key."
    )
