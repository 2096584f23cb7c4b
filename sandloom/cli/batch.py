"""``sandloom batch``: many jobs, each run once."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sandloom.cli.connection import access, connect, with_fallback
from sandloom.cli.invocation import Invocation, Stop, local_faults
from sandloom.cli.output import exit_code_of, json_option, print_json, printable

if TYPE_CHECKING:
    from sandloom.batch.batch import Options
    from sandloom.batch.ways import Way

#: As many threads and connections.
MOST_AT_ONCE = 512
_INTERRUPTED = 130
_NOTHING_RUN = 2


@click.group("batch")
def batch() -> None:
    """Many jobs from a file, side by side."""


@batch.command()
@click.argument("jobs", metavar="JOBS.jsonl", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Results, one line per job; JOBS.results.jsonl if absent.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the results as JUnit XML, too.")
@click.option("--outputs", type=click.Path(path_type=Path), help="Directory for files out; JOBS.outputs if absent.")
@click.option(
    "--concurrency", type=click.IntRange(1, MOST_AT_ONCE), default=8, show_default=True, help="Most jobs at once."
)
@click.option("--resume", is_flag=True, help="Go on where an earlier run stopped, if there was one.")
@click.option(
    "--via", type=click.Choice(["rest", "celery"]), default="rest", show_default=True, help="celery: a fleet's broker."
)
@click.option("--scope", default="batch", show_default=True, help="workspace_scope_id of the sandboxes.")
@click.option("--retries", type=click.IntRange(0, 100), default=2, show_default=True, help="Further attempts of a job.")
@click.option(
    "--retry-on", multiple=True, metavar="REASON", help="Reason to try again for; queue_timeout, not_started."
)
@click.option(
    "--patience", type=click.IntRange(0, 86_400), default=600, show_default=True,
    help="Seconds to wait for a free worker, or for the service to come back.",
)  # fmt: skip
@json_option
@click.pass_obj
def run(
    invocation: Invocation,
    jobs: Path,
    out: Path | None,
    junit: Path | None,
    outputs: Path | None,
    concurrency: int,
    resume: bool,
    via: str,
    scope: str,
    retries: int,
    retry_on: tuple[str, ...],
    patience: int,
    as_json: bool,
) -> int:
    """Run every job of JOBS.jsonl once; exit code 1 when one did not succeed. Killed or interrupted at any moment, it
    goes on with --resume, and commands that still run are taken up again."""
    from sandloom.batch.batch import Batch, Options
    from sandloom.batch.retries import Retries
    from sandloom.errors import BatchInvalid

    options = Options(
        results=out or jobs.with_name(f"{jobs.stem}.results.jsonl"),
        outputs=outputs or jobs.with_name(f"{jobs.stem}.outputs"),
        junit=junit,
        concurrency=concurrency,
        retries=Retries(retries, _reasons(retry_on)) if retry_on else Retries(retries),
        patience_seconds=patience,
        resume=resume,
    )
    try:
        with local_faults():
            loaded = Batch(jobs)
    except BatchInvalid as error:
        for problem in error.extra.get("problems", ()):
            click.echo(printable(f"{jobs}: {problem}"), err=True)
        raise
    with ExitStack() as stack:
        try:
            way = _way(invocation, via, scope, concurrency)
        except Stop as error:
            raise Stop(error.message, _NOTHING_RUN) from None
        stack.callback(way.close)
        return _run(loaded, way, options, as_json)


def _run(loaded: Any, way: Way, options: Options, as_json: bool) -> int:
    from sandloom.cli.batch_display import display
    from sandloom.errors import SandloomError

    # A supervisor's TERM leaves everything as an interrupt from the keyboard does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with display() as shown:
            summary = loaded.run(way, options, on_progress=shown.progress, on_failure=shown.failure)
    except KeyboardInterrupt:
        raise Stop(
            "interrupted; commands that run go on, and the same line with --resume takes them up again", _INTERRUPTED
        ) from None
    except SandloomError as error:
        if exit_code_of(error) != _NOTHING_RUN:
            click.echo("sandloom: the run has ended early; the same line with --resume goes on", err=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        document = {"total": summary.total, "statuses": dict(summary.statuses), "seconds": round(summary.seconds, 3)}
        print_json({**document, "ok": summary.ok, "results": str(options.results)})
    else:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(summary.statuses.items()))
        click.echo(printable(f"{summary.total} jobs: {counts}; results in {options.results}"))
    return 0 if summary.ok else 1


def _way(invocation: Invocation, via: str, scope: str, concurrency: int) -> Way:
    if via == "rest":
        from sandloom.batch.rest import RestWay

        return RestWay(connect(invocation), scope=scope)
    try:
        from sandloom.batch.celery import CeleryWay
        from sandloom.direct import Fleet
    except ImportError:
        raise Stop("--via celery needs the extra sandloom[fleet]; the README says how to install it") from None
    environ = with_fallback(invocation)
    broker = environ.get("SANDBOX_BROKER_URL")
    if not broker:
        raise Stop("--via celery needs SANDBOX_BROKER_URL, the broker of a fleet")
    _, token, tenant = access(invocation)
    named = {"tenant_id": tenant} if tenant else {}
    named |= {"namespace": space} if (space := environ.get("SANDBOX_BROKER_NAMESPACE")) else {}
    fleet = Fleet(broker, api_key=token, result_backend=environ.get("SANDBOX_RESULT_BACKEND"), **named)
    return CeleryWay(fleet, scope=scope)


def _reasons(given: tuple[str, ...]) -> frozenset[str]:
    from sandloom.batch.retries import RETRYABLE

    if unknown := set(given) - RETRYABLE:
        raise Stop(f"--retry-on: {', '.join(sorted(unknown))}: must be one of {', '.join(sorted(RETRYABLE))}")
    return frozenset(given)


COMMANDS = (batch,)
