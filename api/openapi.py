"""The OpenAPI 3.1 document, from the very models that check input and make answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from api.operations import Operation
from api.problems import CONTENT_TYPE
from api.public import PUBLIC_PATHS
from sandloom.contracts.rest import Problem
from sandloom.ids import NAME_PATTERN

_REFERENCE = "#/components/schemas/{model}"
_STATUS = {
    200: "Done.", 202: "Accepted; it goes on.", 204: "Nothing comes after this cursor.", 206: "The range.",
    400: "An error of JSON-RPC, or a problem.", 404: "JSON-RPC: there is no such method.",
}  # fmt: skip
_References = Mapping[Any, dict[str, Any]]  # by model and mode


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The whole document as JSON data."""
    operations = list(operations)
    references, definitions = models_json_schema(_models(operations), ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        address = re.sub(r"<(\w+)>", r"{\1}", operation.rule)
        paths.setdefault(address, {})[operation.method.lower()] = _operation(operation, references)
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
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(operations: Iterable[Operation]) -> list[tuple[type[BaseModel], JsonSchemaMode]]:
    found: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(Problem, "serialization"): None}
    for operation in operations:
        if operation.body is not None:
            found[(operation.body, "validation")] = None
        for answer in operation.answers.values():
            if isinstance(answer, type):
                found[(answer, "serialization")] = None
    return list(found)


def _operation(operation: Operation, references: _References) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path(operation), *_query(operation), *_headers(operation)],
        "responses": _responses(operation, references),
    }
    if operation.rule in PUBLIC_PATHS:
        described["security"] = []
    if operation.body is not None:
        described["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": {"schema": references[(operation.body, "validation")]}},
        }
    if operation.raw_body:
        described["requestBody"] = {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
    return described


def _responses(operation: Operation, references: _References) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in operation.answers.items():
        entry: dict[str, Any] = {"description": _STATUS[status]}
        responses[str(status)] = entry
        if isinstance(answer, type):
            entry["content"] = {"application/json": {"schema": references[(answer, "serialization")]}}
        elif answer:
            entry["content"] = {answer: {"schema": {"type": "string"}}}
    problem = references[(Problem, "serialization")]
    responses["default"] = {
        "description": "A problem; `code` names it.", "content": {CONTENT_TYPE: {"schema": problem}},
    }  # fmt: skip
    return responses


def _path(operation: Operation) -> list[dict[str, Any]]:
    schema = {"type": "string", "pattern": NAME_PATTERN}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in operation.path_names]


def _query(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema()
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inlined(part, schema.get("$defs", {}))}
        for name, part in schema.get("properties", {}).items()
    ]


def _headers(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in operation.request_headers.items()
    ]


def _inlined(part: Any, definitions: dict[str, Any]) -> Any:
    """Query models have few and flat definitions: they are written out where they are used."""
    if isinstance(part, dict):
        if "$ref" in part:
            return _inlined(definitions[part["$ref"].rsplit("/", 1)[1]], definitions)
        return {name: _inlined(value, definitions) for name, value in part.items()}
    return [_inlined(value, definitions) for value in part] if isinstance(part, list) else part
