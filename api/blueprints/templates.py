"""Templates."""

from __future__ import annotations

from flask import Response

from api import raises
from api.answers import answer
from api.operations import Call, Group
from api.queries import NoQuery
from sandloom.contracts.templates import TemplateAnswer, TemplateAttachBody, TemplateBuildBody, TemplateList

group = Group("templates", "Templates")


@group.operation("POST", "/sandboxes/<sandbox_id>/templates", {200: TemplateAnswer}, raises=raises.BUILT)
def build_template(call: Call, sandbox_id: str, query: NoQuery, body: TemplateBuildBody) -> Response:
    """Publish a directory of a quiet sandbox under a name."""
    built = call.services.templates.build(call.sandbox(sandbox_id), body.model_dump())
    return answer(TemplateAnswer.model_validate(built))


@group.operation("PUT", "/sandboxes/<sandbox_id>/templates", {200: TemplateList}, raises=raises.ATTACHED)
def attach_templates(call: Call, sandbox_id: str, query: NoQuery, body: TemplateAttachBody) -> Response:
    """Mount these templates, and no others, in a quiet sandbox."""
    attached = call.services.templates.attach(call.sandbox(sandbox_id), body.model_dump())
    return answer(TemplateList.model_validate(attached))


@group.operation("GET", "/templates", {200: TemplateList}, raises=raises.STORE)
def list_templates(call: Call, query: NoQuery) -> Response:
    """List the tenant's templates and the operator's."""
    return answer(TemplateList.model_validate({"templates": call.services.templates.published(call.tenant_id)}))


@group.operation("DELETE", "/templates/<name>", {200: TemplateAnswer}, raises=raises.UNPUBLISHED)
def unpublish_template(call: Call, name: str, query: NoQuery) -> Response:
    """Take a name out of the catalog; the bytes stay."""
    return answer(TemplateAnswer.model_validate(call.services.templates.unpublish(call.tenant_id, name)))
