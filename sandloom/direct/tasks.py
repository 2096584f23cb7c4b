"""The public tasks: what they are called and which arguments their envelopes carry.

Every task takes one keyword argument, ``envelope`` (see ``sandloom.broker.envelope``), whose ``args`` have the shape of
the model here: the body of the REST call plus ``sandbox_id``. Results are those of the REST calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from sandloom.contracts.files import (
    FileBody,
    FileDeleteBody,
    FileWriteBody,
    GrepBody,
    MkdirBody,
    MoveBody,
    Pattern,
    ReplaceBody,
)
from sandloom.contracts.refusals import validated
from sandloom.contracts.rest import (
    Body,
    ExecBody,
    GenerationBody,
    Name,
    OptionalGenerationBody,
    ResolveBody,
    ScopeId,
)
from sandloom.contracts.templates import TemplateAttachBody, TemplateBuildBody, TemplateName

RESOLVE: Final = "sandloom.resolve"
CONNECT: Final = "sandloom.connect"
EXEC: Final = "sandloom.exec"
CANCEL: Final = "sandloom.cancel"
EXEC_STATUS: Final = "sandloom.exec_status"
FORK: Final = "sandloom.fork"
SUSPEND: Final = "sandloom.suspend"
RESUME: Final = "sandloom.resume"
RELEASE: Final = "sandloom.release"
READ: Final = "sandloom.files.read"
WRITE: Final = "sandloom.files.write"
LIST: Final = "sandloom.files.list"
STAT: Final = "sandloom.files.stat"
MKDIR: Final = "sandloom.files.mkdir"
DELETE: Final = "sandloom.files.delete"
MOVE: Final = "sandloom.files.move"
GLOB: Final = "sandloom.files.glob"
GREP: Final = "sandloom.files.grep"
REPLACE: Final = "sandloom.files.replace"
BUILD_TEMPLATE: Final = "sandloom.templates.build"
ATTACH_TEMPLATES: Final = "sandloom.templates.attach"
LIST_TEMPLATES: Final = "sandloom.templates.list"
UNPUBLISH_TEMPLATE: Final = "sandloom.templates.unpublish"

#: How long a request is good for: a call somebody waits for; an exec that a canvas may send much later.
CALL_SECONDS: Final = 60.0
SIGNATURE_VALID_SECONDS: Final = 86_400.0


class ConnectArguments(GenerationBody):
    sandbox_id: Name


class SuspendArguments(GenerationBody):
    """``idle_since_us``: only unless the sandbox was used after that, by the database's clock."""

    sandbox_id: Name
    idle_since_us: Annotated[int, Field(ge=0)] | None = None


class ResumeArguments(Body):
    sandbox_id: Name


class ForkArguments(GenerationBody):
    """``sandbox_id`` is the source's, as in every task."""

    sandbox_id: Name
    copy_id: Name
    workspace_scope_id: ScopeId


class ReleaseArguments(OptionalGenerationBody):
    sandbox_id: Name


class ExecArguments(ExecBody):
    sandbox_id: Name


class CancelArguments(OptionalGenerationBody):
    sandbox_id: Name
    exec_id: Name


class ExecStatusArguments(Body):
    sandbox_id: Name
    exec_id: Name


class PathArguments(FileBody):
    sandbox_id: Name


class ReadArguments(PathArguments):
    max_bytes: Annotated[int, Field(ge=0)] | None = None


class ListArguments(PathArguments):
    limit: Annotated[int, Field(ge=1, le=100_000)] = 200
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    cursor: str | None = None


class WriteArguments(FileWriteBody):
    sandbox_id: Name


class MkdirArguments(MkdirBody):
    sandbox_id: Name


class DeleteArguments(FileDeleteBody):
    sandbox_id: Name


class MoveArguments(MoveBody):
    sandbox_id: Name


class GlobArguments(PathArguments):
    pattern: Pattern
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000


class GrepArguments(GrepBody):
    sandbox_id: Name


class ReplaceArguments(ReplaceBody):
    sandbox_id: Name


class BuildTemplateArguments(TemplateBuildBody):
    sandbox_id: Name


class AttachTemplatesArguments(TemplateAttachBody):
    sandbox_id: Name


class NoArguments(Body):
    pass


class UnpublishTemplateArguments(Body):
    name: TemplateName


#: Every public task by its name.
ARGUMENTS: Final[Mapping[str, type[Body]]] = {
    RESOLVE: ResolveBody,
    CONNECT: ConnectArguments,
    EXEC: ExecArguments,
    CANCEL: CancelArguments,
    EXEC_STATUS: ExecStatusArguments,
    SUSPEND: SuspendArguments,
    RESUME: ResumeArguments,
    FORK: ForkArguments,
    RELEASE: ReleaseArguments,
    READ: ReadArguments,
    WRITE: WriteArguments,
    LIST: ListArguments,
    STAT: PathArguments,
    MKDIR: MkdirArguments,
    DELETE: DeleteArguments,
    MOVE: MoveArguments,
    GLOB: GlobArguments,
    GREP: GrepArguments,
    REPLACE: ReplaceArguments,
    BUILD_TEMPLATE: BuildTemplateArguments,
    ATTACH_TEMPLATES: AttachTemplatesArguments,
    LIST_TEMPLATES: NoArguments,
    UNPUBLISH_TEMPLATE: UnpublishTemplateArguments,
}


def checked_arguments(task: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they travel. ``ValidationFailed`` names the fields that are wrong, never a value."""
    model = validated(ARGUMENTS[task], dict(arguments))
    return model.model_dump(mode="json", exclude_unset=True)
