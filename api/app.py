"""The Flask application."""

from __future__ import annotations

from flask import Flask, Response, g, request

from api import problems
from api.auth import Authenticator
from api.blueprints import GROUPS
from api.public import PUBLIC_PATHS
from api.request_ids import RequestIds
from api.services import Services

#: Longer addresses are refused whatever the server in front allows.
MAX_QUERY_CHARS = 64 * 1024


def create_app(services: Services) -> Flask:
    """The application over ``services``; ``app.extensions["sandloom"]`` is the same record."""
    app = Flask("api", static_folder=None)
    app.url_map.strict_slashes = True
    app.url_map.merge_slashes = False
    app.extensions["sandloom"] = services
    authenticator = Authenticator(services.settings, services.keys)

    # Registered first and for every address, also those that do not exist: what is not named public needs a token.
    @app.before_request
    def authenticate() -> None:
        rule = request.url_rule
        if rule is not None and rule.rule in PUBLIC_PATHS and request.method in ("GET", "HEAD"):
            return
        g.principal = authenticator.authenticate(
            request.headers.get("Authorization"), request.headers.get("X-Sandbox-Tenant")
        )
        if not g.principal.is_operator:
            services.rates.count(g.principal.tenant_id)

    @app.after_request
    def harden(response: Response) -> Response:
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    problems.register(app)
    for group in GROUPS:
        group.register(app, services)
    app.wsgi_app = RequestIds(app.wsgi_app)  # type: ignore[method-assign]
    return app
