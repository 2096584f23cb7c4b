"""Client commands about files: ls, cat, cp. A path inside a sandbox is written ``ID:/workspace/…``."""

from __future__ import annotations

import click

from sandloom.cli.connection import connect
from sandloom.cli.copying import copy_in, copy_out
from sandloom.cli.invocation import Invocation, Stop, local_faults
from sandloom.cli.output import json_option, print_json, print_table, write_bytes
from sandloom.errors import SandboxNotFound

_FORM = "a path in a sandbox is written ID:/workspace/…"


@click.command()
@click.argument("place", metavar="ID[:PATH]")
@json_option
@click.pass_obj
def ls(invocation: Invocation, place: str, as_json: bool) -> None:
    """Entries of a directory; /workspace without a path."""
    sandbox_id, path = _split(place)
    with connect(invocation) as client:
        try:
            box = client.attach(sandbox_id)
        except SandboxNotFound as error:
            raise (SandboxNotFound(f"{error}; {_FORM}") if ":" in sandbox_id else error) from None
        entries = box.files.list(path or "/workspace")
    rows = [entry.model_dump() for entry in entries]
    print_json(rows) if as_json else print_table(("mode", "type", "size_bytes", "modified_at", "name"), rows)


@click.command()
@click.argument("place", metavar="ID:PATH")
@click.pass_obj
def cat(invocation: Invocation, place: str) -> None:
    """Content of a file, byte for byte."""
    sandbox_id, path = _split(place)
    if path is None:
        raise Stop(f"{place}: {_FORM}")
    with connect(invocation) as client:
        write_bytes(client.attach(sandbox_id).files.read(path))


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.pass_obj
def cp(invocation: Invocation, source: str, destination: str) -> None:
    """Copy a file or a directory into a sandbox or out of it, as cp -r does; one side is ID:/workspace/…, the other a
    local path. Into DST when that is a directory which exists, else to DST itself; SRC/. is what a local directory
    holds. Permissions go along, of a file out of a sandbox whether it may be executed. A directory is added to one of
    its name in a sandbox, and refused where one is here."""
    inside_source, inside_destination = ":/" in source, ":/" in destination
    if inside_source == inside_destination:
        raise Stop(f"exactly one of SRC and DST must be in a sandbox: {_FORM}")
    with connect(invocation) as client, local_faults():
        if inside_destination:
            sandbox_id, path = _split(destination)
            copy_in(client.attach(sandbox_id), source, path or "")
        else:
            sandbox_id, path = _split(source)
            copy_out(client.attach(sandbox_id), path or "", destination)


def _split(place: str) -> tuple[str, str | None]:
    """Ids may hold colons but no slash, so the first ``:/`` is the border."""
    sandbox_id, border, rest = place.partition(":/")
    if "/" in sandbox_id:
        raise Stop(f"{place}: {_FORM}")
    return sandbox_id, f"/{rest}" if border else None


COMMANDS = (ls, cat, cp)
