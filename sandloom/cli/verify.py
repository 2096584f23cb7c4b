"""``sandloom verify``: checks a deployment as a client would use it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

import click

from sandloom.cli.connection import access
from sandloom.cli.invocation import Invocation, Stop
from sandloom.cli.output import json_option, print_json
from sandloom.cli.verify_fleet import FleetChecks
from sandloom.cli.verify_report import Outcome, Report
from sandloom.cli.verify_service import ServiceChecks
from sandloom.sdk import Client

_COLOURS = {"pass": "green", "fail": "red", "skip": "yellow"}


@click.command()
@click.option(
    "--base-url",
    "base_urls",
    multiple=True,
    help="The deployment; again for each further replica. Default: as for all.",
)
@click.option("--strict", is_flag=True, help="Demand the isolation level strict of every worker of the profile.")
@click.option("--fleet", is_flag=True, help="Check also what only several replicas and workers can show.")
@click.option(
    "--stop-worker-command",
    metavar="COMMAND",
    help="With --fleet: ends a worker without a warning; {worker_id} in it is replaced, no shell reads it. What runs on"
    " that worker is lost, and files that are on its disk only.",
)
@json_option
@click.pass_obj
def verify(
    invocation: Invocation,
    base_urls: tuple[str, ...],
    strict: bool,
    fleet: bool,
    stop_worker_command: str | None,
    as_json: bool,
) -> int:
    """Check a deployment as a client; exit code 0 when every check passed. A check that is skipped did not pass.

    It makes sandboxes of its own, with the operator's token, and releases them.
    """
    if stop_worker_command is not None and not fleet:
        raise Stop("--stop-worker-command is for --fleet")
    url, token, tenant = access(invocation)
    urls = base_urls or (url,)
    report = Report(_quiet if as_json else _say)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(each, token, tenant=tenant)) for each in urls]
        ServiceChecks(clients[0], lambda other: Client(urls[0], other), token, report, strict=strict).run()
        if fleet:
            FleetChecks(clients, report, stop_worker_command).run()
    counts = {status: sum(outcome.status == status for outcome in report.outcomes) for status in _COLOURS}
    if as_json:
        checks = [asdict(outcome) for outcome in report.outcomes]
        print_json({"base_urls": urls, "passed": report.passed, **counts, "checks": checks})
    else:
        click.echo(f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} skipped")
    return 0 if report.passed else 1


def _say(outcome: Outcome) -> None:
    status = click.style(outcome.status, fg=_COLOURS[outcome.status])
    click.echo(f"{status}  {outcome.name}: {outcome.detail} ({outcome.seconds:.1f} s)")


def _quiet(outcome: Outcome) -> None:
    return


COMMANDS = (verify,)
