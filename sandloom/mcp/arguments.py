"""Arguments of the tools. Bounds that only the service can judge are left to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from sandloom.contracts.rest import (
    MAX_ARGV,
    Argument,
    Body,
    EnvName,
    Generation,
    Label,
    LabelValue,
    LimitsBody,
    Name,
    ProfileId,
    ScopeId,
    Text,
)

#: Below the minute after which common clients give a call up.
WAIT_SECONDS = 45
MAX_WAIT_SECONDS = 300
OUTPUT_CHARS = 20_000
MAX_OUTPUT_CHARS = 100_000
READ_BYTES = 64 * 1024
MAX_READ_BYTES = 1 << 20

FencingToken = Annotated[
    Generation, Field(description="of sandbox_create or sandbox_resolve; another one than the current is refused")
]
SandboxName = Annotated[Name, Field(description="3 to 128 of A-Z a-z 0-9 _ . : -")]
Scope = Annotated[ScopeId, Field(description="whose workspace it is; the same id with another scope is refused")]
ExecName = Annotated[Name, Field(description="of sandbox_exec")]
Path = Annotated[Text, Field(description="absolute, below /workspace")]
Wait = Annotated[int, Field(ge=0, le=MAX_WAIT_SECONDS, strict=True)]
OutputChars = Annotated[
    int,
    Field(ge=1, le=MAX_OUTPUT_CHARS, strict=True, description="how much of each stream is returned at most"),
]
OutputOffset = Annotated[
    int, Field(ge=-(2**31), le=2**31, strict=True, description="characters to skip; negative: from the end")
]


class NoArguments(Body):
    """None."""


class SandboxArguments(Body):
    sandbox_id: SandboxName


class FencedArguments(SandboxArguments):
    generation: FencingToken


class ResolveArguments(SandboxArguments):
    workspace_scope_id: Scope = "default"
    profile: ProfileId = "coding-default"


class CreateArguments(Body):
    sandbox_id: Annotated[SandboxName | None, Field(description="a new one is chosen unless given")] = None
    workspace_scope_id: Scope = "default"
    profile: ProfileId = "coding-default"
    generation: Annotated[Generation | None, Field(description="only this one is made ready, and none resolved")] = None

    @model_validator(mode="after")
    def _check(self) -> CreateArguments:
        if self.generation is not None and self.sandbox_id is None:
            raise ValueError("sandbox_id is needed with generation")
        return self


class ExecArguments(FencedArguments):
    command: Annotated[Argument | None, Field(description="a line for sh -c; give this or argv")] = None
    argv: Annotated[list[Argument] | None, Field(min_length=1, max_length=MAX_ARGV)] = None
    exec_id: Annotated[
        Name | None, Field(description="idempotency key: the same one never runs twice; chosen unless given")
    ] = None
    cwd: Text = "/workspace"
    env: Annotated[dict[EnvName, Argument], Field(max_length=128)] = Field(default_factory=dict, repr=False)
    stdin: Annotated[Text | None, Field(repr=False)] = None
    timeout_seconds: Annotated[int, Field(ge=1, le=86_400, strict=True)] | None = None
    exec_scope: Annotated[
        Name | None, Field(description="commands of different scopes run side by side; without one: alone")
    ] = None
    labels: Annotated[dict[Label, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    limits: LimitsBody | None = None
    wait_seconds: Annotated[Wait, Field(description="how long to wait for its end; 0 starts it in the background")] = (
        WAIT_SECONDS
    )
    max_output_chars: OutputChars = OUTPUT_CHARS

    @model_validator(mode="after")
    def _check(self) -> ExecArguments:
        if (self.command is None) == (self.argv is None):
            raise ValueError("command is needed, or argv, and not both")
        return self


class ExecStatusArguments(SandboxArguments):
    exec_id: ExecName
    wait_seconds: Annotated[Wait, Field(description="how long to wait for its end")] = 0
    stdout_offset: OutputOffset = 0
    stderr_offset: OutputOffset = 0
    max_output_chars: OutputChars = OUTPUT_CHARS


class CancelArguments(SandboxArguments):
    exec_id: ExecName
    generation: Generation | None = None


class WriteArguments(FencedArguments):
    path: Path
    content: Annotated[Text | None, Field(repr=False, description="text; give this or content_base64")] = None
    content_base64: Annotated[str | None, Field(repr=False)] = None
    mode: Annotated[str, Field(pattern=r"^0?[0-7]{3}$", description="octal")] = "0644"
    parents: Annotated[bool, Field(strict=True, description="make the directories above it that are missing")] = False

    @model_validator(mode="after")
    def _check(self) -> WriteArguments:
        if (self.content is None) == (self.content_base64 is None):
            raise ValueError("content is needed, or content_base64, and not both")
        return self


class ReadArguments(FencedArguments):
    path: Path
    offset: Annotated[int, Field(ge=0, le=2**62, strict=True, description="bytes to skip")] = 0
    max_bytes: Annotated[int, Field(ge=1, le=MAX_READ_BYTES, strict=True)] = READ_BYTES


class ReleaseArguments(SandboxArguments):
    generation: Annotated[Generation | None, Field(description="only this one; whichever is current unless given")] = (
        None
    )
