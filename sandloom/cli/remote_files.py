"""Client commands about files: ls, cat, cp. A path inside a sandbox is written ``ID:/workspace/…``."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import click

from sandloom.cli.connection import connect
from sandloom.cli.invocation import Invocation, Stop, local_faults
from sandloom.cli.output import json_option, print_json, print_table, write_bytes
from sandloom.sdk.files import Files


@click.command()
@click.argument("place", metavar="ID[:PATH]")
@json_option
@click.pass_obj
def ls(invocation: Invocation, place: str, as_json: bool) -> None:
    """Entries of a directory; /workspace without a path."""
    sandbox_id, path = _split(place)
    with connect(invocation) as client:
        entries = client.attach(sandbox_id).files.list(path or "/workspace")
    rows = [entry.model_dump() for entry in entries]
    print_json(rows) if as_json else print_table(("mode", "type", "size_bytes", "modified_at", "name"), rows)


@click.command()
@click.argument("place", metavar="ID:PATH")
@click.pass_obj
def cat(invocation: Invocation, place: str) -> None:
    """Content of a file, byte for byte."""
    sandbox_id, path = _split(place)
    if path is None:
        raise Stop(f"write {place}:/workspace/…")
    with connect(invocation) as client:
        write_bytes(client.attach(sandbox_id).files.read(path))


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.pass_obj
def cp(invocation: Invocation, source: str, destination: str) -> None:
    """Copy a file or a directory into a sandbox or out of it; one side is ID:PATH, the other a local path."""
    inside_source, inside_destination = ":/" in source, ":/" in destination
    if inside_source == inside_destination:
        raise Stop("exactly one of SRC and DST must be ID:/workspace/…")
    with connect(invocation) as client, local_faults():
        if inside_destination:
            sandbox_id, path = _split(destination)
            _copy_in(client.attach(sandbox_id).files, Path(source), path or "")
        else:
            sandbox_id, path = _split(source)
            _copy_out(client.attach(sandbox_id).files, path or "", Path(destination))


def _copy_in(files: Files, source: Path, path: str) -> None:
    """A directory's content goes into the directory of that path."""
    target = _into(path, source.resolve().name)
    if source.is_dir():
        files.upload_tree(source, target)
    else:
        files.upload(source, target)


def _copy_out(files: Files, path: str, local: Path) -> None:
    target = local / PurePosixPath(path).name if local.is_dir() else local
    if files.stat(path).type != "directory":
        files.download(path, target)
        return
    skipped = files.download_tree(path, target).skipped
    if skipped:
        click.echo(f"{skipped} entries were left out: links that lead elsewhere, sockets and the like", err=True)


def _split(place: str) -> tuple[str, str | None]:
    """Ids may hold colons but no slash, so the first ``:/`` is the border."""
    sandbox_id, border, rest = place.partition(":/")
    return sandbox_id, f"/{rest}" if border else None


def _into(path: str, name: str) -> str:
    return path + name if path.endswith("/") else path


COMMANDS = (ls, cat, cp)
