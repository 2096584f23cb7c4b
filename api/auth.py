"""Who calls: the operator's bearer token, and for which tenant."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from sandloom.errors import Unauthorized, ValidationFailed
from sandloom.ids import DEFAULT_TENANT
from sandloom.settings import Settings

_BEARER = re.compile(r"(?i:bearer) +([\x21-\x7e]{1,4096}) *\Z")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: whose things it sees, and its name in the audit."""

    tenant_id: str
    by: str


class Authenticator:
    """Checks ``Authorization`` and ``X-Sandbox-Tenant``."""

    def __init__(self, settings: Settings) -> None:
        tokens = (settings.internal_token, settings.internal_token_previous)
        self._tokens = tuple(token.get_secret_value().encode() for token in tokens if token.get_secret_value())

    def authenticate(self, authorization: str | None, tenant: str | None) -> Principal:
        """The caller. Raises Unauthorized, or ValidationFailed for a tenant that cannot be one."""
        match = _BEARER.match(authorization or "")
        if match is None or not self._known(match[1].encode()):
            raise Unauthorized
        if tenant is None:
            return Principal(DEFAULT_TENANT, "operator")
        if not _TENANT.match(tenant):
            raise ValidationFailed(errors=[{"field": "X-Sandbox-Tenant", "message": "is not a tenant id"}])
        return Principal(tenant, "operator")

    def _known(self, token: bytes) -> bool:
        # Every token is compared, so that the time says nothing about which one was near.
        matches = [hmac.compare_digest(token, known) for known in self._tokens]
        return any(matches)
