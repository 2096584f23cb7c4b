"""Client commands about tenants: key, tenant, usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sandloom.cli.connection import connect
from sandloom.cli.invocation import Invocation
from sandloom.cli.output import json_option, print_json, print_table, print_value
from sandloom.ids import DEFAULT_TENANT

SCOPES = ("read", "write", "tasks")
QUOTAS = {
    "sandboxes": "Sandboxes that live, suspended ones included.",
    "open_execs": "Commands that have not ended.",
    "queued_execs": "Commands that wait.",
    "cpu_seconds_a_day": "CPU seconds in a day (UTC).",
    "model_tokens_a_day": "Tokens of models in a day (UTC).",
    "storage_bytes": "Bytes of files.",
}
_KEY_COLUMNS = ("key_id", "name", "scopes", "created_at", "expires_at", "revoked_at", "usable")
_SUMS = ("execs", "cpu_ms", "wall_ms", "memory_mib_ms", "io_bytes", "egress_bytes", "model_tokens", "stored_byte_days")
_GROUP_COLUMNS = {"tenant": "tenant_id", "scope": "workspace_scope_id", "sandbox": "sandbox_id", "day": "day"}
_WHOSE_KEY = f"The tenant; that in KEY_ID, of SANDBOX_TENANT, or {DEFAULT_TENANT!r}, unless given."
_WHOSE_USAGE = "The tenant, for operators; that of SANDBOX_TENANT, or of the key, unless given."
Command = Callable[..., Any]


def tenant_option(function: Command) -> Command:
    text = f"The tenant; that of SANDBOX_TENANT, or {DEFAULT_TENANT!r}, unless given."
    return click.option("--tenant", "tenant_id", metavar="ID", help=text)(function)


@click.group()
def key() -> None:
    """Keys of tenants; for operators, with their token."""


@key.command()
@click.argument("name", metavar="NAME")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="What it may do; all unless given.")
@click.option("--days", type=click.IntRange(1, 3650), help="It works for so long; for ever unless given.")
@tenant_option
@json_option
@click.pass_obj
def create(
    invocation: Invocation, name: str, scopes: tuple[str, ...], days: int | None, tenant_id: str | None, as_json: bool
) -> None:
    """Make a key called NAME and print it. Nobody can show it again."""
    lifetime_seconds = None if days is None else days * 86_400
    with connect(invocation, tenant_id) as client:
        made = client.tenant.create_key(name, scopes=scopes or SCOPES, lifetime_seconds=lifetime_seconds)
    print_json(made.model_dump()) if as_json else click.echo(made.key)


@key.command(name="list")
@tenant_option
@json_option
@click.pass_obj
def list_keys(invocation: Invocation, tenant_id: str | None, as_json: bool) -> None:
    """The tenant's keys, without the keys themselves."""
    with connect(invocation, tenant_id) as client:
        rows = [found.model_dump() for found in client.tenant.list_keys()]
    print_json(rows) if as_json else print_table(_KEY_COLUMNS, rows)


@key.command()
@click.argument("key_id", metavar="KEY_ID")
@click.option("--tenant", "tenant_id", metavar="ID", help=_WHOSE_KEY)
@json_option
@click.pass_obj
def revoke(invocation: Invocation, key_id: str, tenant_id: str | None, as_json: bool) -> None:
    """End the key KEY_ID for good."""
    with connect(invocation, tenant_id or key_id.rpartition(":")[0] or None) as client:
        row = client.tenant.revoke_key(key_id).model_dump()
    print_json(row) if as_json else print_table(_KEY_COLUMNS, [row])


@click.group()
def tenant() -> None:
    """What a tenant may have; for operators, with their token."""


@tenant.command()
@tenant_option
@json_option
@click.pass_obj
def show(invocation: Invocation, tenant_id: str | None, as_json: bool) -> None:
    """The tenant's quotas."""
    with connect(invocation, tenant_id) as client:
        _print_quotas(client.tenant.quotas().model_dump(), as_json)


def _quota_options(function: Command) -> Command:
    for name, meaning in reversed(QUOTAS.items()):
        option = click.option(f"--{name.replace('_', '-')}", name, type=click.IntRange(-1), help=f"{meaning} -1: any.")
        function = option(function)
    return function


@tenant.command()
@_quota_options
@tenant_option
@json_option
@click.pass_obj
def limit(invocation: Invocation, /, tenant_id: str | None, as_json: bool, **quotas: int | None) -> None:
    """Change the tenant's quotas; those that are not named stay."""
    given = {name: None if value == -1 else value for name, value in quotas.items() if value is not None}
    with connect(invocation, tenant_id) as client:
        known = client.tenant.quotas().model_dump(include=set(QUOTAS))
        _print_quotas(client.tenant.set_quotas(**known | given).model_dump(), as_json)


def _print_quotas(quotas: dict[str, Any], as_json: bool) -> None:
    print_json(quotas) if as_json else print_value({n: "any" if v is None else v for n, v in quotas.items()})


@click.command()
@click.option("--since", metavar="DAY", help="The first day, as 2026-01-31 (UTC); 30 days in all unless given.")
@click.option("--until", metavar="DAY", help="The last day; today unless given.")
@click.option("--by", "group_by", multiple=True, type=click.Choice(list(_GROUP_COLUMNS)), help="Groups to sum up in.")
@click.option("--label", help="Group by the value of this label, too.")
@click.option("--all-tenants", is_flag=True, help="Every tenant's; for operators.")
@click.option("--tenant", "tenant_id", metavar="ID", help=_WHOSE_USAGE)
@json_option
@click.pass_obj
def usage(
    invocation: Invocation, since: str | None, until: str | None, group_by: tuple[str, ...], label: str | None,
    all_tenants: bool, tenant_id: str | None, as_json: bool,
) -> None:  # fmt: skip
    """What the tenant used."""
    with connect(invocation, tenant_id) as client:
        report = client.tenant.usage(
            since=since, until=until, group_by=group_by, label=label, all_tenants=all_tenants
        )  # fmt: skip
    if as_json:
        print_json(report.model_dump())
    elif not report.groups:
        print_value(report.sums.model_dump())
    else:
        columns = [*(_GROUP_COLUMNS[name] for name in group_by), *(["label"] if label else []), *_SUMS]
        print_table(columns, [group.model_dump() for group in report.groups])


COMMANDS = (key, tenant, usage)
