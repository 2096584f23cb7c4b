"""``sandloom mcp``: the tools for agents on a desktop."""

from __future__ import annotations

import signal

import click

from sandloom.cli.connection import access
from sandloom.cli.invocation import Invocation, Stop


@click.command()
@click.pass_obj
def mcp(invocation: Invocation) -> None:
    """Serve the Model Context Protocol on standard input and output, until that ends. Agents start it; its tools act on
    the service that SANDBOX_BASE_URL names."""
    url, token, tenant = access(invocation)
    try:
        from sandloom.mcp.stdio import run
    except ModuleNotFoundError as error:
        raise Stop(
            f"{error.name} is missing: this needs the extra sandloom[mcp]; the README says how to install it"
        ) from error
    # A thread that reads standard input would keep the process until there is some; there is nothing to clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    run(url, token, tenant)


COMMANDS = (mcp,)
