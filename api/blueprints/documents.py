"""The description of the API, and two readers for it that load nothing from elsewhere."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from importlib import resources

from flask import Response

from api.answers import bytes_answer
from api.operations import Call, Group

group = Group("documents", "Documents", prefix="")
_HTML = "text/html; charset=utf-8"
_PAGE_HEADERS = {200: ("Content-Security-Policy",)}
_SWAGGER_START = (
    'SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", deepLinking: true, persistAuthorization: false});'
)
_REDOC_START = 'Redoc.init("/openapi.json", {}, document.getElementById("ui"));'


@group.operation("GET", "/openapi.json", {200: "application/json"})
def document_openapi(call: Call) -> Response:
    """The OpenAPI document."""
    return bytes_answer(_openapi(), "application/json")


@group.operation("GET", "/docs", {200: "text/html"}, answer_headers=_PAGE_HEADERS)
def document_swagger(call: Call) -> Response:
    """Swagger UI."""
    return _page_answer(*_swagger())


@group.operation("GET", "/redoc", {200: "text/html"}, answer_headers=_PAGE_HEADERS)
def document_redoc(call: Call) -> Response:
    """ReDoc."""
    return _page_answer(*_redoc())


@functools.cache
def _openapi() -> bytes:
    from api.blueprints import GROUPS
    from api.openapi import document
    from sandloom import __version__

    operations = [operation for group in GROUPS for operation in group.operations]
    return json.dumps(document(operations, __version__), separators=(",", ":")).encode()


@functools.cache
def _swagger() -> tuple[bytes, str]:
    package = resources.files("flask_openapi3_swagger") / "templates" / "swagger"
    style = (package / "css" / "swagger-ui.css").read_text("utf-8")
    return _page("Sandloom API", style, (package / "js" / "swagger-ui-bundle.js").read_text("utf-8"), _SWAGGER_START)


@functools.cache
def _redoc() -> tuple[bytes, str]:
    package = resources.files("flask_openapi3_redoc") / "templates" / "redoc"
    return _page("Sandloom API", "", (package / "js" / "redoc.standalone.js").read_text("utf-8"), _REDOC_START)


def _page(title: str, style: str, library: str, start: str) -> tuple[bytes, str]:
    """The page with everything inside, since only its own address is open; and the policy that allows just that."""
    # Inside a script element the only text that ends it early is its closing tag.
    scripts = [library.replace("</script", "<\\/script"), start]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    tags = "".join(f"<script>{script}</script>" for script in scripts)
    page = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f'<body style="margin:0"><div id="ui"></div>{tags}</body></html>'
    )
    return page.encode(), policy


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _page_answer(page: bytes, policy: str) -> Response:
    return bytes_answer(page, _HTML, headers={"Content-Security-Policy": policy})
