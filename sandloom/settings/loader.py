"""From a mapping of variables to ``Settings``: names, fallbacks, derived values, all problems in one error."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr, ValidationError

from sandloom.errors import SettingsInvalid
from sandloom.settings.checks import contradictions
from sandloom.settings.fields import PREFIX
from sandloom.settings.model import Origin, Settings
from sandloom.settings.urls import is_redis

#: Read by clients and tests, so neither settings nor typing errors.
CLIENT_NAMES = frozenset({"SANDBOX_BASE_URL", "SANDBOX_API_KEY", "SANDBOX_TENANT"})
TEST_PREFIX = "SANDBOX_TEST_"

VARIABLES: Mapping[str, str] = MappingProxyType({f"{PREFIX}{name.upper()}": name for name in Settings.model_fields})

_EMPTY_MEANS_EMPTY = frozenset(
    name for name, field in Settings.model_fields.items() if "tuple" in str(field.annotation)
)


def load(environ: Mapping[str, str], *, dotenv: Path | None, options: Mapping[str, Any]) -> Settings:
    """See ``Settings.load``."""
    given: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    fallback = _read_dotenv(dotenv)
    for source, origin in ((fallback, ".env"), (environ, "environment")):
        for name, value in _known(source).items():
            given[name] = value
            origins[name] = origin  # type: ignore[assignment]
    for name, value in options.items():
        if value is not None:
            given[name] = value
            origins[name] = "option"
    unknown = _unknown_names([*fallback, *environ])
    return _build(given, origins, unknown)


def rebuild(settings: Settings, values: Mapping[str, Any], origin: Origin) -> Settings:
    """See ``Settings.replaced``."""
    origins = {name: came for name, came in settings.origins.items() if came not in ("default", "derived")}
    given = {name: getattr(settings, name) for name in origins}
    built = _build(given | dict(values), origins | dict.fromkeys(values, origin), ())
    built._warnings = settings.warnings
    return built


def _build(given: Mapping[str, Any], origins: Mapping[str, Origin], unknown: Iterable[str]) -> Settings:
    problems = []
    values, derived = _derive(given)
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += _named(error)
        settings = None
    if settings is not None:
        problems += contradictions(settings)
        if not settings.profile_hash:
            settings = settings.model_copy(update={"profile_hash": settings.declared_hash()})
            derived.append("profile_hash")
    strict = _is_true(given.get("strict_settings"))
    problems += unknown if strict else ()
    if problems or settings is None:
        raise settings_invalid(problems)
    full: dict[str, Origin] = dict.fromkeys(Settings.model_fields, "default")
    full |= dict.fromkeys(derived, "derived")
    settings._origins = MappingProxyType(full | dict(origins))
    settings._warnings = tuple(unknown)
    return settings


def settings_invalid(problems: list[str]) -> SettingsInvalid:
    """One error for all problems."""
    return SettingsInvalid("; ".join(problems), problems=problems)


def default_data_dir(home: str, effective_uid: int) -> Path:
    """Where the embedded mode keeps its files."""
    return Path("/var/lib/sandloom") if effective_uid == 0 else Path(home) / ".local/share/sandloom"


def _derive(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """``given`` plus what follows from it, and the names of the latter."""
    data_dir = Path(given.get("data_dir") or default_data_dir(os.path.expanduser("~"), os.geteuid()))
    broker = str(given.get("broker_url") or "")
    shared = broker if is_redis(broker) else None
    bus = str(given.get("bus_url") or "")
    capacity = given.get("worker_capacity") or Settings.model_fields["worker_capacity"].default
    follows: dict[str, Any] = {
        "data_dir": data_dir,
        "local_root": data_dir / "workspaces",
        "database_url": f"sqlite:///{data_dir / 'sandloom.db'}",
        "database_auto_ddl": str(given.get("database_url") or "sqlite").startswith("sqlite"),
        "bus_url": shared or "memory://",
        "result_backend": shared or (bus if is_redis(bus) else None),
    }
    if str(capacity).isdigit():
        follows["worker_exec_slots"] = min(4 * int(capacity), 10000)
    derived = [name for name in follows if name not in given]
    return {**{name: follows[name] for name in derived}, **given}, derived


def _read_dotenv(path: Path | None) -> dict[str, str]:
    if path is None or not path.is_file():
        return {}
    from dotenv import dotenv_values  # part of the server's dependencies, not of the bare wheel's

    return {name: value for name, value in dotenv_values(path, interpolate=False).items() if value is not None}


def _known(source: Mapping[str, str]) -> dict[str, Any]:
    """The settings in ``source`` by field name. An empty text is no value, except for a list."""
    found: dict[str, Any] = {}
    for variable, name in VARIABLES.items():
        value = source.get(variable)
        if value is None and name.startswith("blobstore_"):
            value = source.get(name.upper())
        if value is None or (not value.strip() and name not in _EMPTY_MEANS_EMPTY):
            continue
        secret = Settings.model_fields[name].annotation is SecretStr
        found[name] = value if secret else value.strip()
    return found


def _unknown_names(names: Iterable[str]) -> tuple[str, ...]:
    messages = []
    for name in sorted(set(names)):
        if not name.startswith(PREFIX) or name.startswith(TEST_PREFIX) or name in CLIENT_NAMES or name in VARIABLES:
            continue
        near = difflib.get_close_matches(name, [*VARIABLES, *CLIENT_NAMES], n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        messages.append(f"{name} is not a setting{hint}")
    return tuple(messages)


def _named(error: ValidationError) -> list[str]:
    """One line per problem, by variable, without the value that caused it."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else ""
        message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        lines.append(f"{PREFIX}{name.upper()} {message[0].lower()}{message[1:]}")
    return lines


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on", "t", "y")
