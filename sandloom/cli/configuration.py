"""``sandloom config``: effective settings and where each came from."""

from __future__ import annotations

from typing import Any

import click

from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.output import json_option, print_json, print_table
from sandloom.settings import VARIABLES, Settings, unsupported

_NAME_OF = {field: variable for variable, field in VARIABLES.items()}


@click.group("config")
def config() -> None:
    """Effective settings, secrets masked."""


@config.command()
@click.argument("names", nargs=-1)
@json_option
@click.pass_obj
def show(invocation: Invocation, names: tuple[str, ...], as_json: bool) -> None:
    """Settings that are not at their default, or those NAMES (with or without SANDBOX_)."""
    settings = Settings.load(invocation.environ, dotenv=invocation.dotenv)
    chosen = [_field(name) for name in names] or [
        name for name, origin in settings.origins.items() if origin != "default"
    ]
    _print(settings, chosen, as_json)


@config.command("list")
@json_option
@click.pass_obj
def list_all(invocation: Invocation, as_json: bool) -> None:
    """Every setting."""
    settings = Settings.load(invocation.environ, dotenv=invocation.dotenv)
    _print(settings, list(Settings.model_fields), as_json)


def _print(settings: Settings, names: list[str], as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"variable": _NAME_OF[name], "value": settings.shown(name), "from": settings.origins[name]} for name in names
    ]
    if as_json:
        print_json({"settings": rows, "warnings": list(settings.warnings), "unsupported": unsupported(settings)})
        return
    print_table(("variable", "value", "from"), rows)
    for problem in (*settings.warnings, *unsupported(settings)):
        click.echo(f"sandloom: {problem}", err=True)


def _field(name: str) -> str:
    variable = name.upper() if name.upper().startswith("SANDBOX_") else f"SANDBOX_{name.upper()}"
    if variable not in VARIABLES:
        raise Stop(f"{variable} is not a setting; 'sandloom config list' shows all")
    return VARIABLES[variable]


COMMANDS = (config,)
