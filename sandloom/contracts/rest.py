"""Bodies and answers of the REST interface; direct tasks take the same request models as arguments.

Unknown fields are refused. Text that becomes a row never holds NUL, and never a lone surrogate, so that every value can
be stored as UTF-8.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from sandloom.ids import NAME_PATTERN, RESERVED_NAMES

MAX_ARGV = 256
MAX_VALUE_CHARS = 65_536
MAX_STDIN_BYTES = 1 << 20


def _storable(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not contain NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain lone surrogates") from None
    return value


def _not_reserved(value: str) -> str:
    if value in RESERVED_NAMES:
        raise ValueError(f"{', '.join(sorted(RESERVED_NAMES))} are reserved")
    return value


Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[
    str, StringConstraints(pattern=NAME_PATTERN, min_length=3, max_length=128), AfterValidator(_not_reserved)
]
ScopeId = Annotated[str, StringConstraints(min_length=1, max_length=191), AfterValidator(_storable)]
ProfileId = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_storable)]
Generation = Annotated[int, Field(ge=1, le=2**63 - 1, strict=True)]
Argument = Annotated[str, StringConstraints(max_length=MAX_VALUE_CHARS), AfterValidator(_storable)]
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
EnvName = Annotated[str, StringConstraints(pattern=ENV_NAME_PATTERN, max_length=256)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_storable)]
LabelValue = Annotated[str, StringConstraints(max_length=256), AfterValidator(_storable)]
#: Syntax is judged where the path is walked (400), so that every path error has one code.
SandboxPath = str


class Body(BaseModel):
    """A request body: unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ResolveBody(Body):
    sandbox_id: Name
    workspace_scope_id: ScopeId
    profile: ProfileId = "coding-default"


class EmptyBody(Body):
    """Nothing but the call itself."""


class GenerationBody(Body):
    generation: Generation


class ForkBody(GenerationBody):
    """``generation`` is the source's; the others are the copy's."""

    sandbox_id: Name
    workspace_scope_id: ScopeId


class OptionalGenerationBody(Body):
    generation: Generation | None = None


class EgressBody(Body):
    allow: Annotated[list[Annotated[Text, Field(max_length=253)]], Field(max_length=256)]


class ModelAccessBody(Body):
    provider: Annotated[Text, Field(min_length=1, max_length=64)]
    max_requests: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_seconds: Annotated[int, Field(ge=1)] | None = None
    record_bodies: bool = False


class LimitsBody(Body):
    memory_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 50)] | None = None
    pids: Annotated[int, Field(ge=1, le=1 << 22)] | None = None
    cpu_percent: Annotated[int, Field(ge=1, le=100_000)] | None = None


class ExecBody(Body):
    exec_id: Name
    generation: Generation
    argv: Annotated[list[Argument], Field(min_length=1, max_length=MAX_ARGV)]
    cwd: Annotated[Text, Field(min_length=1, max_length=4096)] = "/workspace"
    env: Annotated[dict[EnvName, Argument], Field(max_length=128)] = Field(default_factory=dict)
    sensitive_env: Annotated[dict[EnvName, Argument], Field(max_length=8)] = Field(default_factory=dict, repr=False)
    timeout_seconds: Annotated[int, Field(ge=1, le=86_400, strict=True)] | None = None
    background: bool = False
    exec_scope: Name | None = None
    stdin: Text | None = Field(default=None, repr=False)
    stdin_base64: str | None = Field(default=None, repr=False)
    model_access: ModelAccessBody | None = None
    egress: EgressBody | None = None
    labels: Annotated[dict[Label, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    limits: LimitsBody | None = None

    @model_validator(mode="after")
    def _check(self) -> ExecBody:
        if self.argv[0] == "":
            raise ValueError("argv[0] must not be empty")
        if self.stdin is not None and self.stdin_base64 is not None:
            raise ValueError("give stdin or stdin_base64, not both")
        if not (self.cwd == "/workspace" or self.cwd.startswith("/workspace/")) or ".." in self.cwd.split("/"):
            raise ValueError("cwd must be /workspace or below it, without '..'")
        self.stdin_bytes()
        return self

    def stdin_bytes(self) -> bytes | None:
        """The bytes for the command's standard input; None means an empty one."""
        if self.stdin_base64 is not None:
            try:
                data = base64.b64decode(self.stdin_base64, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("stdin_base64 is not base64") from None
        elif self.stdin is not None:
            data = self.stdin.encode()
        else:
            return None
        if len(data) > MAX_STDIN_BYTES:
            raise ValueError(f"stdin is larger than {MAX_STDIN_BYTES} bytes")
        return data


class Answer(BaseModel):
    """An answer: clients must accept fields that they do not know."""

    model_config = ConfigDict(frozen=True)


class RouteAnswer(Answer):
    sandbox_id: str
    workspace_scope_id: str
    worker_id: str
    worker_epoch: int
    worker_endpoint: str = Field(description="the owner's queue")
    expires_at: str | None = Field(description="when the idle rule would act")
    generation: int
    sandbox_uid: int
    status: str
    storage_mode: Literal["local", "shared"]
    profile_id: str
    profile_hash: str
    workspace: Literal["new", "kept", "restored", "lost"]


class SuspendAnswer(RouteAnswer):
    suspended: bool


class ResumeAnswer(RouteAnswer):
    resumed: bool


class RouteList(Answer):
    sandboxes: list[RouteAnswer]
    total: int
    limit: int
    offset: int


class ReleaseAnswer(Answer):
    sandbox_id: str
    status: Literal["RELEASED", "RELEASING"]


class UsageAnswer(Answer):
    cpu_ms: int | None = None
    max_rss_bytes: int | None = None
    pids_peak: int | None = None
    io_bytes: int | None = None
    oom_killed: bool = False


class ExecAnswer(Answer):
    """The record of an exec. ``stdout`` and ``stderr`` are absent in lists; base64 with ``?encoding=base64``."""

    sandbox_id: str
    exec_id: str
    generation: int
    status: str
    argv: list[str]
    exec_scope: str | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    detail: str | None
    error: str | None
    stdout: str | None = None
    stderr: str | None = None
    encoding: Literal["utf-8", "base64"] = "utf-8"
    truncated: bool
    duration_ms: int | None
    queued_ms: int | None
    usage: UsageAnswer | None
    labels: dict[str, str]
    last_seq: int
    created_at: str
    started_at: str | None
    finished_at: str | None


class ExecList(Answer):
    execs: list[ExecAnswer]
    total: int
    limit: int
    offset: int


class CancelAnswer(Answer):
    cancelled: bool


class Problem(Answer):
    """RFC 9457."""

    type: str = "about:blank"
    status: int
    title: str
    detail: str
    code: str
    errors: list[dict[str, Any]] | None = None


class HistoryEntry(Answer):
    generation: int
    started_at: str
    created_by: str
    ready_at: str | None
    released_at: str | None
    release_reason: str | None
    released_by: str | None
    lifetime_ms: int | None


class AuditAnswer(Answer):
    sandbox_id: str
    workspace_scope_id: str
    generation: int
    status: str
    first_created_at: str
    generation_started_at: str
    generation_created_by: str
    ready_at: str | None
    last_active_at: str
    active_duration_ms: int | None
    last_released_generation: int | None
    last_released_at: str | None
    last_release_reason: str | None
    last_released_by: str | None
    last_lifetime_ms: int | None
    lifecycle_count: int
    total_lifetime_ms: int
    history_retention_days: int
    history_max_entries: int
    history_max_bytes: int | None
    history: list[HistoryEntry]
