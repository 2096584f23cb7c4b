"""Operators' commands about single workers: ping, health, drain, undrain."""

from __future__ import annotations

import time
from typing import Any

import click

from sandloom.cli.connection import connect
from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.output import json_option, print_json, print_value
from sandloom.sdk import Client

LOOK_SECONDS = 1.0


@click.command()
@click.argument("worker_id", metavar="ID")
@json_option
@click.pass_obj
def ping(invocation: Invocation, worker_id: str, as_json: bool) -> None:
    """Ask the worker ID for an answer, and say how long it took."""
    with connect(invocation) as client:
        began_seconds = time.monotonic()
        client.worker_health(worker_id)
        took_ms = round((time.monotonic() - began_seconds) * 1000)
    if as_json:
        print_json({"worker_id": worker_id, "took_ms": took_ms})
    else:
        click.echo(f"{worker_id} answered in {took_ms} ms")


@click.command()
@click.argument("worker_id", metavar="ID")
@json_option
@click.pass_obj
def health(invocation: Invocation, worker_id: str, as_json: bool) -> None:
    """What the worker ID says of itself."""
    with connect(invocation) as client:
        state = client.worker_health(worker_id)
    print_json(state) if as_json else print_value(state)


@click.command()
@click.argument("worker_id", metavar="ID")
@click.option("--no-wait", is_flag=True, help="Do not wait until the worker is empty.")
@json_option
@click.pass_obj
def drain(invocation: Invocation, worker_id: str, no_wait: bool, as_json: bool) -> None:
    """Empty the worker ID, so that it can be stopped for good: no new sandboxes, commands finish, quiet sandboxes move
    out. Shows what is left until nothing is; interrupted, the drain goes on."""
    with connect(invocation) as client:
        row = client.drain_worker(worker_id)
        shown = ""
        while True:
            if not as_json and (line := _progress(row)) != shown:
                click.echo(line)
                shown = line
            if row["drain"]["done"] or no_wait:
                break
            time.sleep(LOOK_SECONDS)
            row = _row(client, worker_id)
            if row["drain"] is None:
                raise Stop(f"somebody ended the drain of {worker_id}", 1)
    if as_json:
        print_json(row)


@click.command()
@click.argument("worker_id", metavar="ID")
@json_option
@click.pass_obj
def undrain(invocation: Invocation, worker_id: str, as_json: bool) -> None:
    """Let the worker ID take sandboxes again."""
    with connect(invocation) as client:
        row = client.undrain_worker(worker_id)
    print_json(row) if as_json else click.echo(f"{worker_id} is {row['status']}")


def _row(client: Client, worker_id: str) -> dict[str, Any]:
    row = next((row for row in client.workers() if row["worker_id"] == worker_id), None)
    if row is None:
        raise Stop(f"{worker_id} holds no lease any more; what it has waits for its next start", 1)
    return row


def _progress(row: dict[str, Any]) -> str:
    drain = row["drain"]
    if drain["done"]:
        return f"{row['worker_id']} is empty and may stop"
    left = ", ".join(f"{drain[name]} {name}" for name in ("running", "quiet", "asleep"))
    held = ", ".join(f"{number} x {code}" for code, number in sorted(drain["held_by"].items()))
    return f"{row['worker_id']} still has {left}" + (f"; held by {held}" if held else "")


SUBCOMMANDS = (ping, health, drain, undrain)
