"""Calls by somebody who has no business with what they name, made from the models of the calls themselves."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from sandloom.contracts.templates import TemplateAttachBody

#: What the other tenant has.
SANDBOX, EXEC, TEMPLATE, SCOPE = "their-box", "their-run", "their-template", "their-scope"
#: What a field that must be given gets, by its name. A call with a field that is not here cannot be made, and the walk
#: over all calls fails until somebody says what it is to be.
_VALUES: dict[str, Any] = {
    "sandbox_id": SANDBOX, "exec_id": EXEC, "name": TEMPLATE, "workspace_scope_id": SCOPE, "copy_id": "copy-of-it",
    "generation": 1, "argv": ["true"], "path": "/workspace/file", "source": "/workspace/file",
    "destination": "/workspace/other", "content_base64": "eA==", "pattern": "x", "old": "x", "new": "y",
    "command": "true", "content": "x", "jsonrpc": "2.0", "method": "ping",
}  # fmt: skip


#: Each may come in another form instead, and so is not required by its model.
_ALTERNATIVES = ("path", "source", "destination", "command", "content")


def arguments(model: type[BaseModel] | None) -> dict[str, Any]:
    """The fewest that the model accepts."""
    if model is None:
        return {}
    if issubclass(model, TemplateAttachBody):
        return {**_of(model, "templates"), "templates": [TEMPLATE]}
    return _of(model)


def _of(model: type[BaseModel], *but: str) -> dict[str, Any]:
    fields = model.model_fields.items()
    wanted = [name for name, field in fields if (field.is_required() or name in _ALTERNATIVES) and name not in but]
    given = {name: _VALUES[name] for name in wanted}
    if not but:
        model.model_validate(given)
    return given


def named(rule: str) -> str:
    """The address with what the other tenant has in it."""
    values = {
        "sandbox_id": SANDBOX,
        "exec_id": EXEC,
        "name": TEMPLATE,
        "worker_id": "worker-a",
        "key_id": "them:0123456789ab",
    }
    for name, value in values.items():
        rule = rule.replace(f"<{name}>", value)
    assert "<" not in rule, f"say what the other tenant has there: {rule}"
    return rule
