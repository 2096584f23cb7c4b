"""``sandloom db``: the schema of the metadata database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.output import json_option, print_json
from sandloom.errors import SchemaBehind
from sandloom.settings import Settings, masked

if TYPE_CHECKING:
    from sandloom.db import Database


@click.group("db")
def database() -> None:
    """The schema of the metadata database."""


@database.command()
@click.pass_obj
def upgrade(invocation: Invocation) -> None:
    """Bring the schema to this release."""
    from sandloom import db

    opened, url = _open(invocation)
    db.upgrade(opened)
    click.echo(f"schema is current: {masked(url)}")


@database.command()
@json_option
@click.pass_obj
def check(invocation: Invocation, as_json: bool) -> int:
    """Compare the schema with the code; exit code 3 when something lacks. Extra columns are reported only, and nothing
    is changed."""
    from sandloom import db

    opened, _ = _open_existing(invocation, read_only=True)
    difference = db.compare_schema(opened)
    if as_json:
        print_json({"missing": list(difference.missing), "extra": list(difference.extra)})
        return 3 if difference.missing else 0
    for name in difference.missing:
        click.echo(f"missing: {name}")
    for name in difference.extra:
        click.echo(f"extra:   {name}")
    if difference.missing:
        click.echo("sandloom: SANDBOX_SCHEMA_BEHIND: run 'sandloom db upgrade'", err=True)
        return 3
    click.echo("schema is current")
    return 0


@database.command()
@click.option(
    "--dialect",
    type=click.Choice(["postgresql", "mariadb", "sqlite"]),
    default="postgresql",
    show_default=True,
    help="Database to write it for.",
)
@click.option("--since", metavar="REVISION", help="Print the migrations after REVISION instead ('base': all of them).")
def sql(dialect: str, since: str | None) -> None:
    """Print the schema as SQL, for databases that others manage."""
    _require_server_packages()
    from sandloom import db

    if since and dialect == "sqlite":
        raise Stop("a migration of SQLite rebuilds tables from what it finds: use 'sandloom db upgrade'")
    click.echo(db.migration_sql(dialect, since) if since else db.ddl(dialect), nl=False)


@database.command()
@json_option
@click.pass_obj
def fence(invocation: Invocation, as_json: bool) -> None:
    """After a backup was restored: end what was open in it and make every old route stale, so that nothing reruns.

    Run it before anything is started. Every worker must then be started again.
    """
    _require_server_packages()
    from sandloom import db
    from sandloom.reclaim.fence import fence as fence_rows

    opened, url = _open_existing(invocation)
    db.check_schema(opened)
    fenced = fence_rows(opened)
    if as_json:
        print_json({"execs": fenced.execs, "sandboxes": fenced.sandboxes, "workers": fenced.workers})
        return
    click.echo(
        f"{fenced.execs} open commands ended, {fenced.sandboxes} sandboxes and {fenced.workers} workers moved on: "
        f"{masked(url)}"
    )


def _open(invocation: Invocation, *, read_only: bool = False) -> tuple[Database, str]:
    _require_server_packages()
    from sandloom import db

    settings = Settings.load(invocation.environ, dotenv=invocation.dotenv)
    return db.open_database(settings.database_url, pool_size=2, read_only=read_only), settings.database_url


def _open_existing(invocation: Invocation, *, read_only: bool = False) -> tuple[Database, str]:
    """Raises SchemaBehind where there is no file to open, which is not made by looking for it."""
    opened, url = _open(invocation, read_only=read_only)
    from sandloom import db

    if (file := db.sqlite_file(url)) is not None and not file.exists():
        raise SchemaBehind(f"There is no database {file} yet; 'sandloom db upgrade' makes it.")
    return opened, url


def _require_server_packages() -> None:
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        raise Stop("this command needs the extra sandloom[server]; the README says how to install it") from None


COMMANDS = (database,)
