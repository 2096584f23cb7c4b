"""Settings: read once from a mapping handed in, typed, frozen, every problem in one error."""

from __future__ import annotations

from sandloom.settings.checks import Role, missing_for, unsupported
from sandloom.settings.loader import CLIENT_NAMES, VARIABLES, default_data_dir
from sandloom.settings.model import Settings
from sandloom.settings.secret_files import SECRET_KEY_FILE, TOKEN_FILE, load_secrets, read_token
from sandloom.settings.server import refuse_unsupported, server_settings
from sandloom.settings.urls import is_memory, is_redis, masked, sync_database_url

__all__ = [
    "CLIENT_NAMES", "SECRET_KEY_FILE", "TOKEN_FILE", "VARIABLES", "Role", "Settings", "default_data_dir", "is_memory",
    "is_redis", "load_secrets", "masked", "missing_for", "read_token", "refuse_unsupported", "server_settings",
    "sync_database_url", "unsupported",
]  # fmt: skip
