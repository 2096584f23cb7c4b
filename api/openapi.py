"""The OpenAPI 3.1 document, from the very models that check input and make answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from api.event_formats import EVENTS
from api.openapi_answers import header_components, responses
from api.operations import Operation
from api.public import PUBLIC_PATHS
from sandloom.broker.api_keys import KEY_ID_PATTERN
from sandloom.contracts.rest import Problem
from sandloom.ids import NAME_PATTERN, RESERVED_NAMES, TEMPLATE_NAME_PATTERN, TENANT_PATTERN, WORKER_ID_PATTERN

_REFERENCE = "#/components/schemas/{model}"
_References = Mapping[Any, dict[str, Any]]  # by model and mode
#: Of the names in an address that are not a sandbox's or a command's.
_PATH_PATTERNS = {"key_id": KEY_ID_PATTERN, "name": f"^{TEMPLATE_NAME_PATTERN}$", "worker_id": WORKER_ID_PATTERN}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The whole document as JSON data."""
    operations = list(operations)
    references, definitions = models_json_schema(_models(operations), ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sandloom",
            "version": version,
            "description": "Persistent sandboxes: resolve one, run commands in it, follow them, keep files, release.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "headers": header_components(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(operations: Iterable[Operation]) -> list[tuple[type[BaseModel], JsonSchemaMode]]:
    found: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(Problem, "validation"): None}
    for operation in operations:
        if operation.body is not None:
            found[(operation.body, "validation")] = None
        for model in operation.models():
            found[_answer(model)] = None
    return list(found)


def _answer(model: type[BaseModel]) -> tuple[type[BaseModel], JsonSchemaMode]:
    """Answers hold every field, also one that has a default; events are not made from their models."""
    return model, "validation" if model in EVENTS.values() else "serialization"


def _operation(operation: Operation, references: _References) -> dict[str, Any]:
    answers = {model: references[_answer(model)] for model in operation.models()}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path(operation), *_query(operation), *_headers(operation)],
        "responses": responses(operation, answers, references[(Problem, "validation")]),
    }
    if operation.rule in PUBLIC_PATHS:
        described["security"] = []
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": {"schema": references[(operation.body, "validation")]}},
        }
    if operation.raw_body:
        schema = {"type": "string", "format": "binary"}
        described["requestBody"] = {"required": True, "content": {"application/octet-stream": {"schema": schema}}}
    return described


def _path(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)} for name in operation.path_names
    ]


def _path_schema(name: str) -> dict[str, Any]:
    if name in _PATH_PATTERNS:
        return {"type": "string", "pattern": _PATH_PATTERNS[name]}
    return {"type": "string", "pattern": NAME_PATTERN, "not": {"enum": sorted(RESERVED_NAMES)}}


def _query(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema()
    required, definitions = schema.get("required", []), schema.get("$defs", {})
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(_inlined(part, definitions)),
        }
        for name, part in schema.get("properties", {}).items()
    ]


def _headers(operation: Operation) -> list[dict[str, Any]]:
    own = [_header(name, text, {"type": "string"}) for name, text in operation.request_headers.items()]
    if operation.rule in PUBLIC_PATHS:
        return own
    tenant = {"type": "string", "pattern": TENANT_PATTERN}
    return [*own, _header("X-Sandbox-Tenant", "The tenant that an operator speaks for.", tenant)]


def _header(name: str, text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": text, "schema": schema}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What is not in a query is not there: it has no null."""
    kept = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf" and (name, value) != ("default", None)}
    return {**kept[0], **rest} if len(kept) == 1 else schema


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Query models have few and flat definitions: they are written out where they are used."""
    if isinstance(part, dict):
        if "$ref" in part:
            return _inlined(definitions[part["$ref"].rsplit("/", 1)[1]], definitions)
        return {name: _inlined(value, definitions) for name, value in part.items()}
    return [_inlined(value, definitions) for value in part] if isinstance(part, list) else part
