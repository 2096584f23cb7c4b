"""What answers without a token."""

from __future__ import annotations

#: With GET and HEAD only; a test walks the URL map and pins this list.
PUBLIC_PATHS = frozenset({"/health", "/healthz", "/openapi.json", "/docs", "/redoc"})
