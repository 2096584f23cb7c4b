"""What an operation may answer, in the OpenAPI document: its models, its problems by status, and their headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from api.operations import Operation
from api.problems import CONTENT_TYPE, SERVER_TITLES
from sandloom.errors import Category, MalformedRequest, SandloomError

Content = Mapping[type[BaseModel], dict[str, Any]]  # references by model
_STATUS = {
    200: "Done.", 202: "Accepted; it goes on.", 204: "Nothing comes after this cursor.", 206: "The range.",
    400: "An error of JSON-RPC, or a problem:\n\n", 404: "JSON-RPC: there is no such method; or a problem:\n\n",
}  # fmt: skip
#: Every header that an answer may have beyond those of HTTP itself, and what it says.
HEADERS = {
    "X-Request-ID": "Names this request in the service's logs; the caller's own, if it sent one that fits.",
    "Cache-Control": "`no-store` unless said otherwise.",
    "X-Content-Type-Options": "`nosniff`.",
    "Retry-After": "Seconds after which to call again.",
    "WWW-Authenticate": "How to send the token.",
    "Location": "Where the record of the command is.",
    "Preference-Applied": "What of `Prefer` was followed.",
    "Accept-Ranges": "`bytes`.",
    "Content-Range": "Which bytes these are, and of how many.",
    "Content-Disposition": "`attachment`: nothing to be shown as a page.",
    "Content-Security-Policy": "What the page may load.",
    "X-Accel-Buffering": "`no`, for proxies that would hold a stream back.",
}
_BYTES = ("application/octet-stream", "application/x-tar")
_OF_EACH = ("X-Request-ID", "Cache-Control", "X-Content-Type-Options")


def header_components() -> dict[str, Any]:
    return {
        name: {"description": text, "required": name == "X-Request-ID", "schema": {"type": "string"}}
        for name, text in HEADERS.items()
    }


def responses(operation: Operation, references: Content, problem: dict[str, Any]) -> dict[str, Any]:
    """Entries by status; ``problem`` is the schema of one."""
    found: dict[str, Any] = {}
    for status in operation.answers:
        entry = {"description": _STATUS[status], "headers": _headers(operation.answer_headers.get(status, ()))}
        if contents := operation.contents(status):
            entry["content"] = {kind: {"schema": _schema(kind, model, references)} for kind, model in contents.items()}
        found[str(status)] = entry
    for status, errors in _by_status(operation.errors).items():
        entry = found.setdefault(str(status), {"description": "", "headers": _headers(())})
        entry["description"] += "\n".join(f"- `{error.code}`: {_said(error)}" for error in errors)
        entry["headers"] |= _headers(_problem_headers(status, errors))
        entry.setdefault("content", {})[CONTENT_TYPE] = {"schema": problem}
    for status, title in SERVER_TITLES.items():
        found[str(status)] = {
            "description": f"{title}; `{MalformedRequest.code}`.",
            "headers": _headers(()),
            "content": {CONTENT_TYPE: {"schema": problem}},
        }
    return dict(sorted(found.items()))


def _by_status(errors: Iterable[type[SandloomError]]) -> dict[int, list[type[SandloomError]]]:
    found: dict[int, list[type[SandloomError]]] = {}
    for error in errors:
        found.setdefault(error.status, []).append(error)
    return found


def _said(error: type[SandloomError]) -> str:
    return " ".join((error.__doc__ or "").split())


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*_OF_EACH, *names)}


def _problem_headers(status: int, errors: Iterable[type[SandloomError]]) -> list[str]:
    names = ["WWW-Authenticate"] if status == 401 else []
    return [*names, "Retry-After"] if any(error.category is Category.WAIT for error in errors) else names


def _schema(content_type: str, model: type[BaseModel] | None, references: Content) -> dict[str, Any]:
    if model is not None:
        return references[model]
    if content_type == "application/json":
        return {"type": "object"}
    return {"type": "string", "format": "binary"} if content_type in _BYTES else {"type": "string"}
