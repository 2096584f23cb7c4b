"""The jobs of a batch, as lines of JSON. Pure: from bytes to jobs, or to every problem with its line and field."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from sandloom.batch.retries import MAX_RETRIES, RETRYABLE
from sandloom.contracts.rest import Body, ExecBody
from sandloom.contracts.templates import TemplateRef
from sandloom.execs.owned_names import owned_names

MAX_LINE_BYTES: Final = 8 << 20
WORKSPACE: Final = PurePosixPath("/workspace")
#: Two are set by the batch.
MAX_LABELS: Final = 14
#: Fields of a job that are those of ``POST …/exec``.
COMMAND_FIELDS: Final = frozenset(
    {"argv", "cwd", "env", "timeout_seconds", "stdin", "stdin_base64", "labels", "limits", "egress"}
)


@dataclass(frozen=True, slots=True)
class Problem:
    """``field`` is a dotted path, empty for the line as a whole."""

    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.message}" if self.field else f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Job:
    """``command``: the arguments of its exec as they travel. ``inputs``: place in the sandbox to local path.

    Jobs of the same ``sandbox`` key share one, one after the other; without a key every attempt has its own.
    """

    id: str
    line: int
    command: Mapping[str, Any]
    templates: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    sandbox: str | None = None
    depends_on: tuple[str, ...] = ()
    retries: int | None = None
    retry_on: frozenset[str] | None = None


def _inside(path: str) -> str:
    if "\x00" in path:
        raise ValueError("must not contain NUL")
    place = WORKSPACE / path
    if ".." in place.parts or WORKSPACE not in place.parents:
        raise ValueError("must lie below /workspace, without '..'")
    return str(place)


def _retryable(reason: str) -> str:
    if reason not in RETRYABLE:
        raise ValueError(f"must be one of {', '.join(sorted(RETRYABLE))}")
    return reason


#: Becomes a part of sandbox and exec ids, and the name of a directory.
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,79}$")]
Place = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_inside)]
LocalPath = Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)]


class JobLine(Body):
    """What a line holds besides its command."""

    id: Id
    script: Annotated[str, Field(min_length=1)] | None = None
    templates: Annotated[tuple[TemplateRef, ...], Field(max_length=16)] = ()
    inputs: Annotated[dict[Place, LocalPath], Field(max_length=256)] = Field(default_factory=dict)
    outputs: Annotated[tuple[Place, ...], Field(max_length=256)] = ()
    sandbox: Id | None = None
    depends_on: Annotated[tuple[Id, ...], Field(max_length=10_000)] = ()
    retries: Annotated[int, Field(ge=0, le=MAX_RETRIES, strict=True)] | None = None
    retry_on: frozenset[Annotated[str, AfterValidator(_retryable)]] | None = None


Model = TypeVar("Model", bound=Body)
FIELDS: Final = frozenset(JobLine.model_fields) | COMMAND_FIELDS


def parse(lines: Iterable[bytes]) -> tuple[list[Job], list[Problem]]:
    """Every job, and every problem; blank lines are left out.

    A line with problems is a job too when its id can be read, without the fields that cannot: to be checked against
    the others, not to be run.
    """
    jobs: list[Job] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        value = _object(line)
        if isinstance(value, str):
            problems.append(Problem(number, "", value))
        elif job := _job(number, value, problems):
            jobs.append(job)
    return jobs, problems


def _object(line: bytes) -> dict[str, Any] | str:
    """Or what the line is instead."""
    if len(line) > MAX_LINE_BYTES:
        return f"is longer than {MAX_LINE_BYTES} bytes"
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}"
    except RecursionError:
        return "is nested too deeply"
    except ValueError as error:
        return f"is not JSON: {error}"
    return value if isinstance(value, dict) else "is not a JSON object"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r:.80} is given twice")
    return found


def _job(number: int, value: dict[str, Any], problems: list[Problem]) -> Job | None:
    problems += (Problem(number, name, _unknown(name)) for name in value if name not in FIELDS)
    own = {name: item for name, item in value.items() if name in JobLine.model_fields}
    command = {name: item for name, item in value.items() if name in COMMAND_FIELDS}
    parsed = _own_fields(number, own, problems)
    if ("script" in value) == ("argv" in value):
        problems.append(Problem(number, "argv", "give argv or script, one of the two"))
    elif isinstance(script := value.get("script"), str):
        command["argv"] = ["sh", "-c", script]
    if "argv" in command:
        _check_command(number, command, "argv" if "argv" in value else "script", problems)
    if parsed is None:
        return None
    return Job(
        id=parsed.id,
        line=number,
        command=command,
        templates=parsed.templates,
        inputs=parsed.inputs,
        outputs=tuple(dict.fromkeys(parsed.outputs)),
        sandbox=parsed.sandbox,
        depends_on=tuple(dict.fromkeys(parsed.depends_on)),
        retries=parsed.retries,
        retry_on=parsed.retry_on,
    )


def _own_fields(number: int, own: dict[str, Any], problems: list[Problem]) -> JobLine | None:
    """Those that can be read; None without an id."""
    wrong: list[Problem] = []
    parsed = _checked(JobLine, own, number, wrong)
    if wrong:
        bad = {problem.field.partition(".")[0] for problem in wrong}
        parsed = _checked(JobLine, {name: item for name, item in own.items() if name not in bad}, number, [])
    problems += wrong
    return parsed


def _check_command(number: int, command: dict[str, Any], argv_name: str, problems: list[Problem]) -> None:
    body = _checked(ExecBody, {"exec_id": "job", "generation": 1, **command}, number, problems, {"argv": argv_name})
    if body is None:
        return
    if owned := owned_names(body.env):
        problems.append(Problem(number, f"env.{owned[0]}", "the runtime owns this name, so a job must not set it"))
    if len(body.labels) > MAX_LABELS:
        problems.append(Problem(number, "labels", f"at most {MAX_LABELS}"))


def _checked(
    model: type[Model],
    value: dict[str, Any],
    number: int,
    problems: list[Problem],
    names: Mapping[str, str] | None = None,
) -> Model | None:
    """The model, or None and one problem per field; a message never holds a value."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_context=False, include_input=False):
            first, *rest = [str(part) for part in item["loc"]] or [""]
            field = ".".join([(names or {}).get(first, first), *rest])
            problems.append(Problem(number, field, item["msg"].removeprefix("Value error, ")))
        return None


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.6)
    return f"is not a field of a job; did you mean {near[0]}?" if near else "is not a field of a job"
