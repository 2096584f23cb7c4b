"""One call for the entry points of servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandloom.errors import EgressPolicyUnsupported
from sandloom.settings.checks import EGRESS_CODE, Role, missing_for, unsupported
from sandloom.settings.loader import settings_invalid
from sandloom.settings.model import Settings
from sandloom.settings.secret_files import load_secrets, protect_database


def server_settings(
    environ: Mapping[str, str],
    role: Role,
    *,
    dotenv: Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings with which a process of this role may start, secrets included.

    Raises SettingsInvalid, or EgressPolicyUnsupported when an egress policy was asked for; both end with exit code 2.
    """
    settings = Settings.load(environ, dotenv=dotenv, options=options)
    if role is Role.EMBEDDED:
        settings = settings.embedded()
    refuse_unsupported(settings)
    problems = missing_for(settings, role)
    if problems:
        raise settings_invalid(problems)
    settings = load_secrets(settings)
    protect_database(settings)
    return settings


def refuse_unsupported(settings: Settings) -> None:
    """Raises when the settings ask for what this release cannot enforce."""
    problems = unsupported(settings)
    if any(problem.startswith(EGRESS_CODE) for problem in problems):
        raise EgressPolicyUnsupported("; ".join(problem.removeprefix(f"{EGRESS_CODE}: ") for problem in problems))
    if problems:
        raise settings_invalid(problems)
