"""The largest body of each address, for a server that reads bodies before it asks the application."""

from __future__ import annotations

from flask import Flask
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from api.blueprints import GROUPS
from api.operations import SMALL_BODY_BYTES
from sandloom.settings import Settings


class BodyLimits:
    """Looks the address up as the application will."""

    def __init__(self, app: Flask, settings: Settings) -> None:
        self._adapter: MapAdapter = app.url_map.bind("localhost")
        self._by_endpoint: dict[str, int] = {}
        for group in GROUPS:
            for operation in group.operations:
                limit = settings.max_raw_file_bytes if operation.raw_body else operation.body_limit(settings)
                self._by_endpoint[f"{group.name}.{operation.name}"] = limit
        self.largest = max(self._by_endpoint.values())

    def for_request(self, method: str, path: str) -> int:
        """Bytes; an address or method that does not exist gets that of a small body."""
        try:
            endpoint, _ = self._adapter.match(path, method=method)
        except (HTTPException, ValueError):
            return SMALL_BODY_BYTES
        return self._by_endpoint.get(endpoint, SMALL_BODY_BYTES)
