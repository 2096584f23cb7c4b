"""Client commands about templates: build, list, attach, rm."""

from __future__ import annotations

import click

from sandloom.cli.completion import sandbox_argument
from sandloom.cli.connection import connect
from sandloom.cli.invocation import Invocation
from sandloom.cli.output import json_option, print_json, print_table, print_value
from sandloom.cli.several import each, print_rows

_COLUMNS = ("name", "digest", "size_bytes", "created_at", "shared")


@click.group()
def template() -> None:
    """Trees that one sandbox publishes and others mount read-only."""


@template.command()
@sandbox_argument
@click.argument("name", metavar="NAME")
@click.option("--from", "source_path", default="/envs", show_default=True, help="Directory of the sandbox.")
@click.option("--description", default="", help="A text for people.")
@json_option
@click.pass_obj
def build(
    invocation: Invocation, sandbox_id: str, name: str, source_path: str, description: str, as_json: bool
) -> None:
    """Publish a directory of the sandbox ID as NAME; nothing may run in it meanwhile."""
    with connect(invocation) as client:
        made = client.attach(sandbox_id).publish_template(name, source_path, description=description).model_dump()
    print_json(made) if as_json else print_value(made)


@template.command("list")
@json_option
@click.pass_obj
def list_templates(invocation: Invocation, as_json: bool) -> None:
    """What can be attached."""
    with connect(invocation) as client:
        rows = [found.model_dump() for found in client.templates()]
    print_json(rows) if as_json else print_table(_COLUMNS, rows)


@template.command()
@sandbox_argument
@click.argument("names", metavar="NAME[@sha256:HEX]...", nargs=-1, required=True)
@json_option
@click.pass_obj
def attach(invocation: Invocation, sandbox_id: str, names: tuple[str, ...], as_json: bool) -> None:
    """Mount these templates, and no others, in the sandbox ID."""
    with connect(invocation) as client:
        rows = [found.model_dump() for found in client.attach(sandbox_id).attach_templates(*names)]
    print_json(rows) if as_json else print_table(("name", "digest", "mount_target"), rows)


@template.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
@click.pass_obj
def rm(invocation: Invocation, names: tuple[str, ...], as_json: bool) -> int:
    """Take names out of the catalog."""
    with connect(invocation) as client:
        rows, code = each(names, lambda name: client.unpublish_template(name).model_dump())
    print_rows(_COLUMNS, rows, as_json)
    return code


COMMANDS = (template,)
