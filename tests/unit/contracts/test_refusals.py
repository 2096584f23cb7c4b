"""What a refusal says: the field, and what it must be, in words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from sandloom.contracts.refusals import validated
from sandloom.contracts.rest import ExecBody, ResolveBody
from sandloom.contracts.templates import TemplateRef
from sandloom.errors import ValidationFailed


class References(BaseModel):
    templates: list[TemplateRef]


@pytest.mark.parametrize(
    ("model", "wrong", "said"),
    [
        (ResolveBody, {"sandbox_id": "my box"}, "sandbox_id: must be 3 to 128 of A-Z a-z 0-9 _ . : -"),
        (ResolveBody, {"sandbox_id": "me"}, "sandbox_id: must have at least 3 characters"),
        (ResolveBody, {"sandbox_id": 5}, "sandbox_id: must be a valid string"),
        (ResolveBody, {"profil": "x"}, "profil: is not a field; did you mean profile?"),
        (ExecBody, {"env": {"a b": "c"}}, "env.a b.[key]: must be of A-Z a-z 0-9 _, not beginning with a digit"),
        (ExecBody, {"cwd": "/etc"}, "cwd: must be /workspace or below it, without '..'"),
        (ExecBody, {"argv": [""]}, "argv: argv[0] must not be empty"),
        (ExecBody, {"exec_id": ...}, "exec_id: is missing"),
        (References, {"templates": ["A"]}, "templates.0: must be 1 to 64 of a-z 0-9 . _ -, beginning with"),
    ],
)
def test_a_refusal_says_what_a_field_must_be(model: type[BaseModel], wrong: dict[str, Any], said: str) -> None:
    right: dict[type[BaseModel], dict[str, Any]] = {
        ResolveBody: {"sandbox_id": "box", "workspace_scope_id": "team"},
        ExecBody: {"generation": 1, "exec_id": "one", "argv": ["true"]},
        References: {"templates": []},
    }
    validated(model, right[model])
    body = {name: value for name, value in (right[model] | wrong).items() if value is not ...}
    with pytest.raises(ValidationFailed) as caught:
        validated(model, body)
    assert str(caught.value).startswith(f"A field of the request is not acceptable: {said}")
