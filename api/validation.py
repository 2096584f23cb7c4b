"""Checks of what comes in an address: ids, and the query string."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from werkzeug.datastructures import MultiDict

from sandloom.broker.api_keys import is_key_id
from sandloom.contracts.refusals import Model, invalid, validated
from sandloom.errors import MalformedRequest
from sandloom.ids import (
    NAME_RULE,
    RESERVED_NAMES,
    TEMPLATE_NAME_RULE,
    WORKER_ID_RULE,
    is_name,
    is_template_name,
    is_worker_id,
)


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
    return validated(model, values)


def check_name(field: str, value: str) -> str:
    """An id from the path; ``name`` is a template's, ``worker_id`` a worker's. Raises ValidationFailed."""
    if field == "name":
        if not is_template_name(value):
            raise invalid(field, TEMPLATE_NAME_RULE)
        return value
    if field == "key_id":
        if not is_key_id(value):
            raise invalid(field, "must be a key's id: its tenant, a colon and 12 hexadecimal digits")
        return value
    if field == "worker_id":
        if not is_worker_id(value):
            raise invalid(field, WORKER_ID_RULE)
        return value
    if not is_name(value):
        reserved = f"; {', '.join(sorted(RESERVED_NAMES))} are reserved" if value in RESERVED_NAMES else ""
        raise invalid(field, NAME_RULE + reserved)
    return value
