"""The command group, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

import sandloom
from sandloom.cli import (
    batch,
    completion,
    configuration,
    database,
    demo,
    doctor,
    mcp,
    remote_files,
    remote_runs,
    remote_sandboxes,
    remote_templates,
    remote_tenants,
    servers,
    verify,
)
from sandloom.cli.advice import told
from sandloom.cli.connection import refused_token
from sandloom.cli.invocation import Invocation
from sandloom.cli.output import exit_code_of, one_line, print_error
from sandloom.errors import SandloomError, Unauthorized


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(sandloom.__version__, "-V", "--version", prog_name="sandloom")
@click.option("--debug", is_flag=True, help="Show a traceback where something fails.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Persistent sandboxes for agents: run the service, or use it."""
    context.obj = _invocation()


def _invocation() -> Invocation:
    return Invocation(environ=dict(os.environ), dotenv=Path.cwd() / ".env")


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit codes: 0; 2 bad usage, bad settings or blocked isolation; 3 the schema is behind; 1 anything else."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in _before_separator(words)
    try:
        code = cli.main(args=words, prog_name="sandloom", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader went away (`sandloom ps | head`); Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except SandloomError as error:
        if debug:
            raise
        print_error(error, refused_token(_invocation()) if isinstance(error, Unauthorized) else told(error))
        sys.exit(exit_code_of(error))
    except Exception as error:
        if debug:
            raise
        click.echo(f"sandloom: {type(error).__name__}: {one_line(str(error))} (--debug shows where)", err=True)
        sys.exit(1)


def _before_separator(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


for _module in (
    servers,
    demo,
    database,
    doctor,
    configuration,
    remote_runs,
    remote_sandboxes,
    remote_files,
    remote_templates,
    remote_tenants,
    batch,
    mcp,
    verify,
    completion,
):
    for _command in _module.COMMANDS:
        cli.add_command(_command)
