"""pydantic models as judges of what came from outside; their verdict as one 422 that never repeats a value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sandloom.contracts.rest import ENV_NAME_PATTERN
from sandloom.contracts.templates import TEMPLATE_REF_PATTERN, WHOLE_TEMPLATE_NAME_PATTERN
from sandloom.errors import ValidationFailed
from sandloom.ids import NAME_PATTERN, NAME_RULE, TEMPLATE_NAME_RULE

Model = TypeVar("Model", bound=BaseModel)
_RULES = {
    NAME_PATTERN: NAME_RULE,
    WHOLE_TEMPLATE_NAME_PATTERN: TEMPLATE_NAME_RULE,
    TEMPLATE_REF_PATTERN: f"{TEMPLATE_NAME_RULE}; @sha256: and the digest's 64 digits may follow",
    ENV_NAME_PATTERN: "must be of A-Z a-z 0-9 _, not beginning with a digit",
}
_MAX_ERRORS = 20
_MAX_FIELD_CHARS = 300


def validated(model: type[Model], value: Any) -> Model:
    """``value`` as ``model``. Raises ValidationFailed."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _failure(model, error) from None


def invalid(field: str, message: str) -> ValidationFailed:
    """The error for one field."""
    return ValidationFailed(errors=[{"field": field[:_MAX_FIELD_CHARS], "message": message}])


def _failure(model: type[BaseModel], error: ValidationError) -> ValidationFailed:
    """Field names and rules only; what was sent may be a secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return ValidationFailed(errors=[_entry(model, problem) for problem in problems[:_MAX_ERRORS]])


def _entry(model: type[BaseModel], problem: Any) -> dict[str, str]:
    place: tuple[int | str, ...] = problem["loc"]
    message = _in_words(str(problem["msg"]))
    if problem["type"] == "extra_forbidden":
        message = "is not a field" + _nearest(model, place)
    elif problem["type"] == "missing":
        message = "is missing"
    # A rule over the whole model names the field it is about in its message.
    field = ".".join(str(part) for part in place) or _named(model, message)
    return {"field": field[:_MAX_FIELD_CHARS], "message": message.removeprefix(f"{field} ")}


def _in_words(message: str) -> str:
    """What a value must be: nobody should have to read a regular expression."""
    rule = _RULES.get(message.removeprefix("String should match pattern ").strip("'"))
    return rule or re.sub(r"^(\w+ )?should ", "must ", message.removeprefix("Value error, "))


def _named(model: type[BaseModel], message: str) -> str:
    words = re.findall(r"[a-z_0-9]+", message)
    return next((word for word in words if word in model.model_fields), "")


def _nearest(model: type[BaseModel], place: Sequence[int | str]) -> str:
    names = model.model_fields if len(place) == 1 else _fields_at(model, place[:-1])
    near = difflib.get_close_matches(str(place[-1])[:64], list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _fields_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """The fields of the model nested at ``place``; none where there is no such model."""
    inner = model.model_fields.get(str(place[0]))
    for candidate in getattr(inner and inner.annotation, "__args__", (inner and inner.annotation,)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel) and len(place) == 1:
            return list(candidate.model_fields)
    return []
