"""Shell completion: of commands and options by click, and of sandboxes by asking the service."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from sandloom.cli import listing
from sandloom.cli.connection import access
from sandloom.cli.invocation import Invocation, Stop
from sandloom.sdk import Client

_ASK_SECONDS = 2.0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what SHELL must read for completion: `eval "$(sandloom completion bash)"`."""
    kind = get_completion_class(shell)
    if kind is None:
        raise Stop(f"no completion for {shell}")
    root = context.find_root()
    click.echo(kind(root.command, {}, "sandloom", "_SANDLOOM_COMPLETE").source())


def complete_sandbox(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of sandboxes that are in use; nothing when the service cannot be asked at once."""
    try:
        url, token, tenant = access(Invocation(environ=dict(os.environ), dotenv=Path.cwd() / ".env"))
        with Client(url, token, tenant=tenant, timeout_seconds=_ASK_SECONDS) as client:
            found, _ = listing.sandboxes(client, listing.NOT_RELEASED, 100, search=incomplete or None)
    except Exception:  # whatever it is, a shell that waits for a word must not be disturbed
        return []
    return [route.sandbox_id for route in found if route.sandbox_id.startswith(incomplete)]


sandbox_argument = click.argument("sandbox_id", metavar="ID", shell_complete=complete_sandbox)
sandboxes_argument = click.argument(
    "sandbox_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_sandbox
)

COMMANDS = (completion,)
