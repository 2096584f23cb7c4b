"""Secrets that a deployment did not name: made once, kept in DATA_DIR, readable by the service's account only."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from pydantic import SecretStr

from sandloom.errors import SettingsInvalid
from sandloom.settings.model import Settings

TOKEN_FILE = "token"
SECRET_KEY_FILE = "secret_key"
_MAX_BYTES = 4096


def load_secrets(settings: Settings) -> Settings:
    """The settings with INTERNAL_TOKEN and SECRET_KEY; those not given are read from DATA_DIR, or made there.

    Raises SettingsInvalid in ``prod``, where both must be given, and when the files cannot be used.
    """
    files = {"internal_token": TOKEN_FILE, "secret_key": SECRET_KEY_FILE}
    missing = {name: file for name, file in files.items() if not getattr(settings, name).get_secret_value()}
    if missing and settings.environment == "prod":
        names = [f"SANDBOX_{name.upper()}" for name in missing]
        raise SettingsInvalid("; ".join(f"{name} is required when SANDBOX_ENVIRONMENT is prod" for name in names))
    if not missing:
        return settings
    values = {name: SecretStr(read_or_make(settings.data_dir / file)) for name, file in missing.items()}
    return settings.replaced("generated", **values)


def read_token(data_dir: Path) -> str | None:
    """The token of a local embedded service, if this account may read it."""
    try:
        return (data_dir / TOKEN_FILE).read_text("ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_or_make(path: Path) -> str:
    """The text of the secret file, made with 0600 when it is not there; two processes at once agree on one text."""
    try:
        # Sandbox accounts pass through to their workspaces below it; they may not list it.
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _make(path)
        return _read(path)
    except OSError as error:
        raise SettingsInvalid(f"SANDBOX_DATA_DIR: {path} cannot be used: {error.strerror}") from error


def protect_database(settings: Settings) -> None:
    """Make the SQLite file, when it is not there, readable by the service's account only; its log files follow it."""
    scheme, _, name = settings.database_url.partition(":///")
    path = Path(name.partition("?")[0])
    if scheme.startswith("sqlite") and path.is_absolute() and not path.exists():
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _make(path: Path) -> None:
    """Write beside and link: the name appears with all of its content, and never replaces another's."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_mode & 0o077:
            raise SettingsInvalid(f"{path} must be a regular file that only its owner can read (chmod 600)")
        text = file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    if not text:
        raise SettingsInvalid(f"{path} is empty; delete it to have a new one made")
    return text
