"""The OpenAPI document is whole, says what the routes do, and comes from the models that check input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from api.blueprints import GROUPS
from api.openapi import document
from api.operations import Operation
from api.public import PUBLIC_PATHS
from sandloom.errors import REGISTRY, Category

OPERATIONS = [operation for group in GROUPS for operation in group.operations]


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(json.dumps(document(OPERATIONS, "1.2.3")))
    return whole


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from nodes(item)


def entry(described: dict[str, Any], operation: Operation) -> dict[str, Any]:
    address = re.sub(r"<(\w+)>", r"{\1}", operation.rule)
    found: dict[str, Any] = described["paths"][address][operation.method.lower()]
    return found


def test_it_is_version_3_1_with_its_required_parts(described: dict[str, Any]) -> None:
    assert described["openapi"] == "3.1.0"
    assert described["info"]["title"]
    assert described["info"]["version"] == "1.2.3"
    assert described["security"] == [{"bearer": []}]
    assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    references = [node["$ref"] for node in nodes(described) if "$ref" in node]
    assert references
    for reference in references:
        _, _, kind, name = reference.split("/")
        assert name in described["components"][kind], reference


def test_every_operation_is_there_once_under_its_own_name(described: dict[str, Any]) -> None:
    listed = [one for path in described["paths"].values() for one in path.values()]
    assert len(listed) == len(OPERATIONS)
    assert len({one["operationId"] for one in listed}) == len(OPERATIONS)
    for operation in OPERATIONS:
        assert entry(described, operation)["operationId"] == operation.name
        assert entry(described, operation)["summary"].endswith(".")


def test_parameters_are_those_of_the_address_and_the_query_model(described: dict[str, Any]) -> None:
    for operation in OPERATIONS:
        parameters = entry(described, operation)["parameters"]
        by_place = {place: [p["name"] for p in parameters if p["in"] == place] for place in ("path", "query")}
        assert by_place["path"] == operation.path_names
        assert by_place["query"] == list(operation.query.model_fields if operation.query else ())
        assert all(p["required"] for p in parameters if p["in"] == "path")


def test_numbers_of_a_query_have_their_bounds(described: dict[str, Any]) -> None:
    numbers = [
        parameter["schema"]
        for operation in OPERATIONS
        for parameter in entry(described, operation)["parameters"]
        if parameter["schema"].get("type") == "integer"
    ]
    assert len(numbers) > 20
    assert [schema for schema in numbers if "minimum" not in schema] == []


def test_bodies_and_answers_are_the_very_models(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    for operation in OPERATIONS:
        found = entry(described, operation)
        if operation.body is not None:
            reference = found["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            name = reference.rsplit("/", 1)[1]
            assert set(schemas[name]["properties"]) == set(operation.body.model_fields)
            assert schemas[name]["additionalProperties"] is False
        for status in operation.answers:
            content = found["responses"][str(status)].get("content", {})
            for kind, model in operation.contents(status).items():
                if model is not None:
                    name = content[kind]["schema"]["$ref"].rsplit("/", 1)[1]
                    assert set(schemas[name]["properties"]) == set(model.model_fields)


def test_every_error_of_an_operation_is_named_under_its_status(described: dict[str, Any]) -> None:
    for operation in OPERATIONS:
        responses = entry(described, operation)["responses"]
        assert "default" not in responses
        for error in operation.errors:
            response = responses[str(error.status)]
            assert f"`{error.code}`" in response["description"]
            assert "application/problem+json" in response["content"]
            assert ("Retry-After" in response["headers"]) or error.category is not Category.WAIT
        assert ("401" in responses) == (operation.rule not in PUBLIC_PATHS)


def test_every_header_of_an_answer_is_described(described: dict[str, Any]) -> None:
    used = {name for operation in OPERATIONS for names in operation.answer_headers.values() for name in names}
    assert used <= set(described["components"]["headers"])


def test_errors_that_clients_meet_are_raised_by_some_operation() -> None:
    """What is left are errors of processes, and those that only a command's record holds."""
    raised = {error.code for operation in OPERATIONS for error in operation.errors}
    rest = {code for code, error in REGISTRY.items() if code not in raised and not hasattr(error, "exit_code")}
    assert rest == {
        "METHOD_NOT_ALLOWED", "SANDBOX_PROGRAM_NOT_FOUND", "SANDBOX_PROGRAM_NOT_EXECUTABLE", "SANDBOX_CWD_UNAVAILABLE",
        "SANDBOX_LAUNCH_FAILED", "SANDBOX_QUEUE_TIMEOUT", "SANDBOX_DIRECT_TASKS_OFF",
    }  # fmt: skip


def test_open_operations_say_so_and_no_others(described: dict[str, Any]) -> None:
    for operation in OPERATIONS:
        assert ("security" in entry(described, operation)) == (operation.rule in PUBLIC_PATHS)
