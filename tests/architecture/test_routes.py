"""Agreements about routes: which there are, which are open, and that each is checked by models."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from flask import Flask

from api.blueprints import GROUPS
from api.operations import Operation
from api.public import PUBLIC_PATHS

OPERATIONS = [operation for group in GROUPS for operation in group.operations]
BLUEPRINTS = sorted(Path("api/blueprints").resolve().glob("*.py"))

#: What clients rely on; a route added or lost is a decision.
CONTRACT = {
    "POST /api/v1/sandboxes/resolve",
    "GET /api/v1/sandboxes",
    "GET /api/v1/sandboxes/<sandbox_id>",
    "POST /api/v1/sandboxes/<sandbox_id>",
    "DELETE /api/v1/sandboxes/<sandbox_id>",
    "POST /api/v1/sandboxes/<sandbox_id>/fork",
    "POST /api/v1/sandboxes/<sandbox_id>/suspend",
    "POST /api/v1/sandboxes/<sandbox_id>/resume",
    "GET /api/v1/sandboxes/<sandbox_id>/audit",
    "POST /api/v1/sandboxes/<sandbox_id>/exec",
    "GET /api/v1/sandboxes/<sandbox_id>/exec",
    "GET /api/v1/sandboxes/<sandbox_id>/exec/<exec_id>",
    "POST /api/v1/sandboxes/<sandbox_id>/exec/<exec_id>/cancel",
    "GET /api/v1/sandboxes/<sandbox_id>/exec/<exec_id>/events",
    "PUT /api/v1/sandboxes/<sandbox_id>/files",
    "GET /api/v1/sandboxes/<sandbox_id>/files",
    "GET /api/v1/sandboxes/<sandbox_id>/files/list",
    "GET /api/v1/sandboxes/<sandbox_id>/files/stat",
    "POST /api/v1/sandboxes/<sandbox_id>/files/mkdir",
    "POST /api/v1/sandboxes/<sandbox_id>/files/delete",
    "POST /api/v1/sandboxes/<sandbox_id>/files/move",
    "GET /api/v1/sandboxes/<sandbox_id>/files/glob",
    "POST /api/v1/sandboxes/<sandbox_id>/files/grep",
    "POST /api/v1/sandboxes/<sandbox_id>/files/replace",
    "GET /api/v1/sandboxes/<sandbox_id>/archive",
    "PUT /api/v1/sandboxes/<sandbox_id>/archive",
    "GET /api/v1/sandboxes/<sandbox_id>/files/raw",
    "PUT /api/v1/sandboxes/<sandbox_id>/files/raw",
    "POST /api/v1/sandboxes/<sandbox_id>/templates",
    "PUT /api/v1/sandboxes/<sandbox_id>/templates",
    "GET /api/v1/templates",
    "DELETE /api/v1/templates/<name>",
    "POST /api/v1/admin/keys",
    "GET /api/v1/admin/keys",
    "DELETE /api/v1/admin/keys/<key_id>",
    "GET /api/v1/admin/quotas",
    "PUT /api/v1/admin/quotas",
    "GET /api/v1/usage",
    "POST /api/v1/sandboxes/mcp/streamable-http",
    "GET /api/v1/sandboxes/diagnostics/runtime",
    "POST /api/v1/admin/workers/<worker_id>/drain",
    "POST /api/v1/admin/workers/<worker_id>/undrain",
    "GET /api/v1/admin/workers/<worker_id>/health",
    "GET /health",
    "GET /healthz",
    "GET /openapi.json",
    "GET /docs",
    "GET /redoc",
}


def test_the_routes_are_those_of_the_contract() -> None:
    assert {f"{operation.method} {operation.rule}" for operation in OPERATIONS} == CONTRACT
    assert len(OPERATIONS) == len(CONTRACT)


def test_the_open_addresses_are_exactly_these() -> None:
    assert {"/health", "/healthz", "/openapi.json", "/docs", "/redoc"} == PUBLIC_PATHS
    assert {operation.rule for operation in OPERATIONS} >= PUBLIC_PATHS
    assert all(operation.method == "GET" for operation in OPERATIONS if operation.rule in PUBLIC_PATHS)


def test_the_url_map_holds_nothing_else(url_map: set[str]) -> None:
    assert url_map == CONTRACT


@pytest.fixture
def url_map(bare_app: Flask) -> set[str]:
    return {
        f"{method} {rule.rule}"
        for rule in bare_app.url_map.iter_rules()
        for method in (rule.methods or ())
        if method != "HEAD"
    }


@pytest.fixture
def bare_app(sqlite_url: str, tmp_path: Path) -> Flask:
    from api.app import create_app
    from api.services import assemble
    from sandloom.broker.publisher import KombuPublisher
    from sandloom.db import open_database
    from sandloom.settings import Settings
    from sandloom.streams import MemoryBus

    variables = {"SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_INTERNAL_TOKEN": "t", "SANDBOX_SECRET_KEY": "s"}
    settings = Settings.load(variables).embedded()
    services = assemble(settings, open_database(sqlite_url), MemoryBus(), KombuPublisher(settings.broker_url))
    return create_app(services)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.rule}")
def test_input_is_checked_by_models(operation: Operation) -> None:
    if operation.rule in PUBLIC_PATHS:
        return
    assert operation.query is not None, "unknown parameters would be ignored"
    takes_body = operation.method in ("POST", "PUT")
    assert (operation.body is not None or operation.raw_body) == takes_body
    assert operation.query.model_config.get("extra") == "forbid"
    assert operation.body is None or operation.body.model_config.get("extra") == "forbid"


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda path: path.name)
def test_a_view_reads_as_one_sentence(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert len(ast.unparse(node).splitlines()) <= 25, f"{path.name}: {node.name} does too much for a route"
