"""Bodies and answers of templates."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from sandloom.contracts.rest import Answer, Body, Generation, Label, LabelValue, SandboxPath, Text
from sandloom.ids import TEMPLATE_NAME_PATTERN


def _no_line_end(value: str) -> str:
    if value.endswith("\n"):
        raise ValueError("must not end with a line break")
    return value


WHOLE_TEMPLATE_NAME_PATTERN = rf"^{TEMPLATE_NAME_PATTERN}$"
TEMPLATE_REF_PATTERN = rf"^{TEMPLATE_NAME_PATTERN}(@sha256:[0-9a-f]{{64}})?$"
TemplateName = Annotated[
    str, StringConstraints(pattern=WHOLE_TEMPLATE_NAME_PATTERN, max_length=64), AfterValidator(_no_line_end)
]
TemplateRef = Annotated[
    str, StringConstraints(pattern=TEMPLATE_REF_PATTERN, max_length=136), AfterValidator(_no_line_end)
]


class TemplateBuildBody(Body):
    generation: Generation
    name: TemplateName
    source_path: SandboxPath = "/envs"
    description: Annotated[Text, Field(max_length=1024)] = ""
    labels: Annotated[dict[Label, LabelValue], Field(max_length=32)] = Field(default_factory=dict)


class TemplateAttachBody(Body):
    generation: Generation
    templates: Annotated[list[TemplateRef], Field(min_length=1, max_length=16)]


class TemplateAnswer(Answer):
    """``shared`` is false where the template is on one worker alone."""

    name: str
    digest: str
    size_bytes: int
    mount_target: str
    created_at: str
    description: str
    source_sandbox_id: str
    labels: dict[str, str]
    shared: bool


class TemplateList(Answer):
    templates: list[TemplateAnswer]
