"""Declares a route once: the models in a view's signature check its input and describe it in the OpenAPI document.

A view is a function ``view(call, <path names>, body: Model, query: Model) -> Response``; ``body`` and ``query`` are
there only if it has them. Its docstring's first line is the summary.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from flask import Blueprint, Flask, Request, Response, g, request
from pydantic import BaseModel

from api.auth import Principal
from api.bodies import has_body, read_json
from api.public import PUBLIC_PATHS
from api.raises import EVERY_CALL, WITH_BODY, WITH_RAW_BODY, WITH_TOKEN, Errors
from api.services import Services
from api.validation import check_name, check_query_text, validate_query
from sandloom.contracts.refusals import validated
from sandloom.ids import SandboxKey
from sandloom.settings import Settings
from sandloom.tenants.records import KeyScope

Method = Literal["GET", "POST", "PUT", "DELETE"]
View = Callable[..., Response]
#: A model, or the content type of what has none; both where the request decides; "" is no body.
Answers = type[BaseModel] | str | Mapping[str, type[BaseModel]]
#: Enough for every body without file content or a command line.
SMALL_BODY_BYTES = 256 * 1024
_PATH_NAME = re.compile(r"<(\w+)>")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a view sees it."""

    services: Services
    request: Request
    principal: Principal

    @property
    def tenant_id(self) -> str:
        return self.principal.tenant_id

    def sandbox(self, sandbox_id: str) -> SandboxKey:
        return SandboxKey(self.principal.tenant_id, sandbox_id)


@dataclass(frozen=True)
class Operation:
    """One method of one address."""

    method: Method
    rule: str
    view: View
    tag: str
    answers: Mapping[int, Answers]  # by status
    body: type[BaseModel] | None
    body_optional: bool
    raw_body: bool
    query: type[BaseModel] | None
    body_limit: Callable[[Settings], int]
    request_headers: Mapping[str, str]
    scope: KeyScope
    operators_only: bool
    answer_headers: Mapping[int, tuple[str, ...]]  # beyond those of every answer
    raises: Errors  # beyond those of every call

    @property
    def name(self) -> str:
        return self.view.__name__

    @property
    def path(self) -> str:
        """The address as OpenAPI writes it."""
        return _PATH_NAME.sub(r"{\1}", self.rule)

    @property
    def path_names(self) -> list[str]:
        return _PATH_NAME.findall(self.rule)

    @property
    def errors(self) -> Errors:
        """All that it may raise, each once."""
        found = list(EVERY_CALL)
        if self.rule not in PUBLIC_PATHS:
            found += WITH_TOKEN
        if self.body is not None:
            found += WITH_BODY
        if self.raw_body:
            found += WITH_RAW_BODY
        return tuple(dict.fromkeys([*found, *self.raises]))

    def models(self) -> list[type[BaseModel]]:
        """Those of its answers."""
        contents = [self.contents(status) for status in self.answers]
        return [model for content in contents for model in content.values() if model is not None]

    def contents(self, status: int) -> Mapping[str, type[BaseModel] | None]:
        """What an answer of this status may hold, by content type."""
        found = self.answers[status]
        if isinstance(found, str):
            return {found: None} if found else {}
        return found if isinstance(found, Mapping) else {"application/json": found}

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.view) or self.name).splitlines()[0]

    def bind(self, services: Services) -> Callable[..., Response]:
        """The Flask view: check, then call."""
        limit_bytes = self.body_limit(services.settings)

        @functools.wraps(self.view)
        def serve(**path: str) -> Response:
            current = request._get_current_object()  # type: ignore[attr-defined]
            principal: Principal | None = g.get("principal")
            if principal is not None:
                principal.demand(self.scope, self.operators_only)
            arguments: dict[str, Any] = {name: check_name(name, value) for name, value in path.items()}
            if self.query is not None:
                check_query_text(current.query_string)
                arguments["query"] = validate_query(self.query, current.args)
            if self.body is not None:
                left_out = self.body_optional and not has_body(current)
                arguments["body"] = None if left_out else validated(self.body, read_json(current, limit_bytes))
            return self.view(Call(services, current, principal), **arguments)  # type: ignore[arg-type]

        return serve


@dataclass
class Group:
    """The operations of one blueprint."""

    name: str
    tag: str
    prefix: str = "/api/v1"
    operations: list[Operation] = field(default_factory=list)

    def operation(
        self,
        method: Method,
        rule: str,
        answers: Mapping[int, Answers],
        *,
        raw_body: bool = False,
        body_limit: Callable[[Settings], int] = lambda _settings: SMALL_BODY_BYTES,
        request_headers: Mapping[str, str] | None = None,
        scope: KeyScope | None = None,
        operators_only: bool = False,
        answer_headers: Mapping[int, tuple[str, ...]] | None = None,
        raises: Errors = (),
    ) -> Callable[[View], View]:
        """Declare the decorated view. ``scope``: what a tenant's key needs, by its method unless given;
        ``operators_only``: for tenants there is nothing at this address."""

        def declare(view: View) -> View:
            hints = get_type_hints(view)
            self.operations.append(
                Operation(
                    method,
                    self.prefix + rule,
                    view,
                    self.tag,
                    answers,
                    body=_model(hints.get("body")),
                    body_optional=type(None) in get_args(hints.get("body")),
                    raw_body=raw_body,
                    query=_model(hints.get("query")),
                    body_limit=body_limit,
                    request_headers=request_headers or {},
                    scope=scope or (KeyScope.READ if method == "GET" else KeyScope.WRITE),
                    operators_only=operators_only,
                    answer_headers=answer_headers or {},
                    raises=raises,
                )
            )
            return view

        return declare

    def register(self, app: Flask, services: Services) -> None:
        """Mount the operations on ``app``."""
        blueprint = Blueprint(self.name, __name__)
        for operation in self.operations:
            blueprint.add_url_rule(
                operation.rule, endpoint=operation.name, view_func=operation.bind(services),
                methods=[operation.method], provide_automatic_options=False,
            )  # fmt: skip
        app.register_blueprint(blueprint)


def _model(hint: Any) -> type[BaseModel] | None:
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
