"""Client commands about sandboxes: resolve, ps, audit, suspend, resume, fork, release."""

from __future__ import annotations

import click

from sandloom.cli import listing
from sandloom.cli.completion import complete_sandbox, sandbox_argument, sandboxes_argument
from sandloom.cli.connection import connect
from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.output import json_option, print_json, print_table, print_value
from sandloom.cli.several import Row, each, print_rows
from sandloom.sdk import Sandbox


@click.command()
@sandbox_argument
@click.option("--scope", default="cli", show_default=True, help="workspace_scope_id of the sandbox.")
@click.option("--profile", default="coding-default", show_default=True, help="Profile to ask for.")
@json_option
@click.pass_obj
def resolve(invocation: Invocation, sandbox_id: str, scope: str, profile: str, as_json: bool) -> None:
    """Find or make the sandbox ID and have its workspace made ready."""
    with connect(invocation) as client:
        route = client.sandbox(sandbox_id, scope=scope, profile=profile, keep=True).route.model_dump()
    print_json(route) if as_json else print_value(route)


@click.command()
@click.argument("sandbox_id", metavar="[ID]", required=False, shell_complete=complete_sandbox)
@click.option("--all", "-a", "everything", is_flag=True, help="RELEASED sandboxes, too; the newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(listing.STATUSES, case_sensitive=False),
    help="Sandboxes of this status only; again for more.",
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most rows.")
@json_option
@click.pass_obj
def ps(
    invocation: Invocation, sandbox_id: str | None, everything: bool, statuses: tuple[str, ...], limit: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Sandboxes that are not RELEASED, by status; with ID the commands of that sandbox, newest first."""
    if sum((everything, bool(statuses), sandbox_id is not None)) > 1:
        raise Stop("only one of --all, --status and ID may be given")
    asked: tuple[str | None, ...] = (None,) if everything else statuses or listing.NOT_RELEASED
    with connect(invocation) as client:
        if sandbox_id is None:
            columns: tuple[str, ...] = ("sandbox_id", "status", "generation", "worker_id", "workspace_scope_id")
            routes, more = listing.sandboxes(client, asked, limit)
            rows = [route.model_dump() for route in routes]
        else:
            columns = ("exec_id", "status", "exit_code", "duration_ms", "exec_scope", "argv")
            records, more = listing.first([client.attach(sandbox_id).processes], lambda each: each.exec_id, limit)
            rows = [record.model_dump() for record in records]
    print_json(rows) if as_json else print_table(columns, rows)
    if more:
        click.echo(f"sandloom: there are more than these {limit}; --limit shows more", err=True)


@click.command()
@sandbox_argument
@json_option
@click.pass_obj
def audit(invocation: Invocation, sandbox_id: str, as_json: bool) -> None:
    """The lives of the sandbox ID so far: who made and released it, when, and why."""
    with connect(invocation) as client:
        found = client.attach(sandbox_id).audit().model_dump()
    if as_json:
        print_json(found)
        return
    history = found.pop("history")
    print_value(found)
    if history:
        click.echo()
        print_table(("generation", "started_at", "created_by", "released_at", "released_by", "release_reason"), history)


@click.command()
@sandboxes_argument
@json_option
@click.pass_obj
def release(invocation: Invocation, sandbox_ids: tuple[str, ...], as_json: bool) -> int:
    """End the commands of sandboxes and delete their files."""
    with connect(invocation) as client:
        rows, code = each(sandbox_ids, lambda name: {"sandbox_id": name, "status": client.attach(name).release()})
    print_rows(("sandbox_id", "status"), rows, as_json)
    return code


@click.command()
@sandboxes_argument
@json_option
@click.pass_obj
def suspend(invocation: Invocation, sandbox_ids: tuple[str, ...], as_json: bool) -> int:
    """Have quiet sandboxes give their slots back and keep their files."""
    with connect(invocation) as client:
        rows, code = each(sandbox_ids, lambda name: {"sandbox_id": name, "suspended": client.attach(name).suspend()})
    print_rows(("sandbox_id", "suspended"), rows, as_json)
    return code


@click.command()
@sandboxes_argument
@json_option
@click.pass_obj
def resume(invocation: Invocation, sandbox_ids: tuple[str, ...], as_json: bool) -> int:
    """Wake suspended sandboxes."""
    with connect(invocation) as client:
        rows, code = each(sandbox_ids, lambda name: _resumed(client.attach(name)))
    print_rows(("sandbox_id", "resumed", "generation", "workspace"), rows, as_json)
    return code


def _resumed(box: Sandbox) -> Row:
    resumed = box.resume()
    return {"sandbox_id": box.id, "resumed": resumed, "generation": box.generation, "workspace": box.route.workspace}


@click.command()
@sandbox_argument
@click.argument("copy_id", metavar="NEW_ID")
@click.option("--scope", help="workspace_scope_id of the copy; that of ID unless given.")
@json_option
@click.pass_obj
def fork(invocation: Invocation, sandbox_id: str, copy_id: str, scope: str | None, as_json: bool) -> None:
    """Make the sandbox NEW_ID with a copy of the files of ID, in which nothing may run meanwhile."""
    with connect(invocation) as client:
        route = client.attach(sandbox_id).fork(copy_id, scope=scope, keep=True).route.model_dump()
    print_json(route) if as_json else print_value(route)


COMMANDS = (resolve, ps, audit, suspend, resume, fork, release)
