"""The routes, one module per noun."""

from __future__ import annotations

from api.blueprints import (
    diagnostics,
    documents,
    events,
    execs,
    files,
    health,
    mcp,
    raw_files,
    sandboxes,
    templates,
    tenants,
    workers,
)
from api.operations import Group

#: In the order of the OpenAPI document.
GROUPS: tuple[Group, ...] = (
    sandboxes.group, execs.group, events.group, files.group, raw_files.group, templates.group,
    tenants.group, mcp.group,
    diagnostics.group, workers.group, health.group, documents.group,
)  # fmt: skip
