"""Who calls: the operator's bearer token, or a tenant's key; and for which tenant."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from sandloom.errors import KeyScopeMissing, NotFound, Unauthorized, ValidationFailed
from sandloom.ids import DEFAULT_TENANT, is_tenant_id
from sandloom.settings import Settings
from sandloom.tenants.keys import Keys
from sandloom.tenants.records import KeyScope

_BEARER = re.compile(r"(?i:bearer) +([\x21-\x7e]{1,4096}) *\Z")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: whose things it sees, its name in the audit, and what its key may do; an operator has no key."""

    tenant_id: str
    by: str
    scopes: frozenset[KeyScope] | None = None
    key_id: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.scopes is None

    @property
    def guest(self) -> str | None:
        """The tenant, unless an operator calls for it."""
        return None if self.is_operator else self.tenant_id

    def demand(self, scope: KeyScope, operators_only: bool) -> None:
        """Raises NotFound where a tenant has no business, KeyScopeMissing where its key has none."""
        if self.scopes is None:
            return
        if operators_only:
            raise NotFound
        if scope not in self.scopes:
            raise KeyScopeMissing.of(scope.value)


class Authenticator:
    """Checks ``Authorization`` and ``X-Sandbox-Tenant``."""

    def __init__(self, settings: Settings, keys: Keys) -> None:
        tokens = (settings.internal_token, settings.internal_token_previous)
        self._tokens = tuple(token.get_secret_value().encode() for token in tokens if token.get_secret_value())
        self._keys = keys

    def authenticate(self, authorization: str | None, tenant: str | None) -> Principal:
        """The caller. Raises Unauthorized, NotFound for a key that names another tenant, Unavailable, and
        ValidationFailed for a tenant that cannot be one."""
        match = _BEARER.match(authorization or "")
        if match is None:
            raise Unauthorized
        if self._known(match[1].encode()):
            return Principal(_checked(tenant) or DEFAULT_TENANT, "operator")
        key = self._keys.of_text(match[1])
        if key is None:
            raise Unauthorized
        if _checked(tenant) not in (None, key.tenant_id):
            raise NotFound
        return Principal(key.tenant_id, f"key {key.key_id}", key.scopes, key.key_id)

    def _known(self, token: bytes) -> bool:
        # Every token is compared, so that the time says nothing about which one was near.
        matches = [hmac.compare_digest(token, known) for known in self._tokens]
        return any(matches)


def _checked(tenant: str | None) -> str | None:
    if tenant is not None and not is_tenant_id(tenant):
        raise ValidationFailed(errors=[{"field": "X-Sandbox-Tenant", "message": "is not a tenant id"}])
    return tenant
