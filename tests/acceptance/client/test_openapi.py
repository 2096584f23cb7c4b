"""The service answers as its OpenAPI document says, to requests that fit the document and to those that do not; and a
client that was generated from it works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from api.operations import Operation
from sandloom import Client
from sandloom.cli.local_service import LocalService
from tests.acceptance.client.openapi_cases import CHECKS, OPERATIONS, Home, check_answer

pytestmark = pytest.mark.bwrap
EXAMPLES, LONG_EXAMPLES = 2, 100
MAKE = ("resolve_sandbox", "fork_sandbox")


@pytest.fixture(scope="module")
def document(service: LocalService) -> Any:
    """As the service itself gives it."""
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


@pytest.fixture
def home(client: Client) -> Iterator[Home]:
    furnished = Home.furnish(client)
    yield furnished
    # The worker is the only one.
    client.undrain_worker(furnished.box.route.worker_id)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_its_answers_are_documented(
    operation: Operation, document: Any, service: LocalService, home: Home, request: pytest.FixtureRequest
) -> None:
    described = document[operation.path][operation.method]
    modes = [GenerationMode.POSITIVE] + [GenerationMode.NEGATIVE] * bool(described.query.items or described.body.items)
    examples = LONG_EXAMPLES if request.config.getoption("--long") else EXAMPLES

    @settings(
        max_examples=examples * len(modes), derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def answers(draw: st.DataObject) -> None:
        mode = draw.draw(st.sampled_from(modes))
        case = draw.draw(described.as_strategy(generation_mode=mode))
        if mode is GenerationMode.POSITIVE and draw.draw(st.booleans()):
            home.move_in(case, draw)
        response = case.call(base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, timeout=60)
        check_answer(case, response)
        must_be_refused = mode is GenerationMode.NEGATIVE and response.status_code < 400 and is_sent(case, response)
        case.validate_response(response, checks=CHECKS + [negative_data_rejection] * must_be_refused)
        if operation.name in MAKE and response.status_code == 200:
            release(service, response.json()["sandbox_id"], case.headers.get("X-Sandbox-Tenant"))

    answers()


def is_sent(case: schemathesis.Case, response: schemathesis.Response) -> bool:
    """Whether the address has every parameter of the case: an empty list leaves nothing there."""
    sent = parse_qs(urlsplit(str(response.request.url)).query, keep_blank_values=True)
    return set(case.query) <= set(sent)


def release(service: LocalService, sandbox_id: str, tenant: str | None) -> None:
    """The worker has so many places, and the requests would take them all."""
    with Client(service.url, service.token, tenant=tenant) as client:
        client.attach(sandbox_id).release()
