"""pydantic models as judges of bodies and queries; their verdicts as one 422 that never repeats a value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError
from werkzeug.datastructures import MultiDict

from sandloom.broker.api_keys import is_key_id
from sandloom.errors import MalformedRequest, ValidationFailed
from sandloom.ids import RESERVED_NAMES, is_name, is_template_name, is_worker_id

Model = TypeVar("Model", bound=BaseModel)
_MAX_ERRORS = 20
_MAX_FIELD_CHARS = 300


def validate(model: type[Model], value: Any) -> Model:
    """``value`` as ``model``. Raises ValidationFailed."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise failure(model, error) from None


def check_query_text(query: bytes) -> None:
    """Raises MalformedRequest unless the query is UTF-8: what is not would silently name something else."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise MalformedRequest("The query string is not UTF-8.") from None


def validate_query(model: type[Model], query: MultiDict[str, str]) -> Model:
    """The query string as ``model``. Raises ValidationFailed, also for a parameter given twice."""
    values: dict[str, str] = {}
    for name, given in query.lists():
        if len(given) > 1:
            raise invalid(name, "is given more than once")
        values[name] = given[0]
    return validate(model, values)


def invalid(field: str, message: str) -> ValidationFailed:
    """The error for one field."""
    return ValidationFailed(errors=[{"field": field[:_MAX_FIELD_CHARS], "message": message}])


def check_name(field: str, value: str) -> str:
    """An id from the path; ``name`` is a template's, ``worker_id`` a worker's. Raises ValidationFailed."""
    if field == "name":
        if not is_template_name(value):
            raise invalid(field, "must be 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit")
        return value
    if field == "key_id":
        if not is_key_id(value):
            raise invalid(field, "must be a key's id: its tenant, a colon and 12 hexadecimal digits")
        return value
    if field == "worker_id":
        if not is_worker_id(value):
            raise invalid(field, "must be 1 to 128 of A-Z a-z 0-9 _ . -, beginning with a letter or digit")
        return value
    if not is_name(value):
        reserved = f"; {', '.join(sorted(RESERVED_NAMES))} are reserved" if value in RESERVED_NAMES else ""
        raise invalid(field, f"must be 3 to 128 of A-Z a-z 0-9 _ . : -{reserved}")
    return value


def failure(model: type[BaseModel], error: ValidationError) -> ValidationFailed:
    """Field names and rules only; what was sent may be a secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return ValidationFailed(errors=[_entry(model, problem) for problem in problems[:_MAX_ERRORS]])


def _entry(model: type[BaseModel], problem: Any) -> dict[str, str]:
    place: tuple[int | str, ...] = problem["loc"]
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    if problem["type"] == "extra_forbidden":
        message = "is not a field" + _nearest(model, place)
    # A rule over the whole model names the field it is about in its message.
    field = ".".join(str(part) for part in place) or _named(model, message)
    return {"field": field[:_MAX_FIELD_CHARS], "message": message}


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
