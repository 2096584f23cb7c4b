"""Every answer that a test gets is one that the OpenAPI document names."""

from __future__ import annotations

import re

import httpx

from api.blueprints import GROUPS
from api.operations import Operation
from api.problems import CONTENT_TYPE, SERVER_TITLES

#: Fixed addresses before those with names in them, as the router has it.
_OPERATIONS = sorted(
    (operation for group in GROUPS for operation in group.operations), key=lambda operation: operation.rule.count("<")
)


def check(response: httpx.Response) -> None:
    """For httpx's event hooks. Raises AssertionError."""
    operation = _find(response.request)
    if operation is None or response.status_code in SERVER_TITLES:
        return
    told = f"{operation.name}: {response.status_code}"
    content_type = response.headers.get("Content-Type", "").partition(";")[0]
    if content_type != CONTENT_TYPE:
        assert response.status_code in operation.answers, told
        assert content_type in (operation.contents(response.status_code) or ("",)), f"{told} {content_type}"
    elif response.request.method != "HEAD":
        code = httpx.Response(response.status_code, content=response.read()).json()["code"]
        documented = {(error.status, error.code) for error in operation.errors}
        assert (response.status_code, code) in documented, f"{told} {code}"


def _find(request: httpx.Request) -> Operation | None:
    method = "GET" if request.method == "HEAD" else request.method
    path = request.url.raw_path.decode("ascii").partition("?")[0]
    for operation in _OPERATIONS:
        if operation.method == method and re.fullmatch(re.sub(r"<\w+>", "[^/]+", operation.rule), path):
            return operation
    return None
