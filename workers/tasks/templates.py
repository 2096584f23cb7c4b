"""Templates: built from a sandbox that nobody else uses meanwhile, attached, listed, unpublished."""

from __future__ import annotations

from typing import Any

from sandloom.contracts.rest import Body, Name
from sandloom.contracts.templates import TemplateAttachBody, TemplateBuildBody, TemplateName
from sandloom.templates.records import Template
from sandloom.templates.references import DIGEST_PREFIX
from workers.reception import Lane
from workers.tasks.requests import Call, public


class BuildArgs(TemplateBuildBody):
    sandbox_id: Name


class AttachArgs(TemplateAttachBody):
    sandbox_id: Name


class NoArgs(Body):
    pass


class UnpublishArgs(Body):
    name: TemplateName


@public("sandloom.templates.build", Lane.TEMPLATES, BuildArgs)
def build(call: Call[BuildArgs]) -> dict[str, Any]:
    """Published only if nobody had the sandbox, or took it away, while it was read."""
    args, templates = call.args, call.node.templates
    wanted = Template(args.name, "", 0, "", args.description, args.sandbox_id, dict(args.labels))
    with templates.draft() as path:
        with call.node.homes.alone(call.sandbox, args.generation) as home:
            built = templates.build(path, home, args.source_path)
        published = templates.publish(call.tenant_id, wanted, built)
    return published.answer(templates.catalog.shared)


@public("sandloom.templates.attach", Lane.TEMPLATES, AttachArgs)
def attach(call: Call[AttachArgs]) -> dict[str, Any]:
    """A set, in place of the earlier one."""
    templates = call.node.templates
    chosen = templates.choose(call.tenant_id, call.args.templates)
    attached = {name: found.digest.removeprefix(DIGEST_PREFIX) for name, found in chosen.items()}
    with call.node.homes.alone(call.sandbox, call.args.generation):
        call.node.homes.change_templates(call.sandbox, call.args.generation, attached)
    return {"templates": [found.answer(templates.catalog.shared) for found in chosen.values()]}


@public("sandloom.templates.list", Lane.TEMPLATES, NoArgs)
def list_templates(call: Call[NoArgs]) -> dict[str, Any]:
    catalog = call.node.templates.catalog
    return {"templates": [found.answer(catalog.shared) for found in catalog.list(call.tenant_id)]}


@public("sandloom.templates.unpublish", Lane.TEMPLATES, UnpublishArgs)
def unpublish(call: Call[UnpublishArgs]) -> dict[str, Any]:
    catalog = call.node.templates.catalog
    return catalog.unpublish(call.tenant_id, call.args.name).answer(catalog.shared)
