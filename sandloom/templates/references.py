"""What a client names: ``name``, or ``name@sha256:<hex>`` for one revision of it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sandloom.errors import TemplateConflict, TemplateNotFound
from sandloom.templates.records import Template

DIGEST_PREFIX = "sha256:"


class Reference(NamedTuple):
    """``digest`` as in ``Template``; ``None``: the current revision."""

    name: str
    digest: str | None


def parse(text: str) -> Reference:
    name, _, digest = text.partition("@")
    return Reference(name, digest or None)


def pinned(template: Template | None, reference: Reference) -> str:
    """The digest that is meant. Raises TemplateNotFound."""
    if template is None:
        raise TemplateNotFound(f"There is no template {reference.name}; publish it first.")
    if reference.digest not in (None, *template.revisions):
        raise TemplateNotFound(f"The template {reference.name} has no revision {reference.digest}.")
    return reference.digest or template.digest


def collect(found: list[tuple[str, str]]) -> dict[str, str]:
    """Digests by name. Raises TemplateConflict, which names both digests, for two revisions of one name."""
    chosen: dict[str, str] = {}
    for name, digest in found:
        if chosen.setdefault(name, digest) != digest:
            raise TemplateConflict(
                f"The template {name} was asked for in two revisions, {chosen[name]} and {digest}; keep one."
            )
    return dict(sorted(chosen.items()))
