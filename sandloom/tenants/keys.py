"""Keys of tenants: made, listed, revoked, recognised. The rows keep a hash; the key is shown once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from sandloom.broker.api_keys import KeyMint, parse
from sandloom.clock import MICROSECONDS
from sandloom.db.clock import now_us
from sandloom.db.engine import Database
from sandloom.db.tables import api_keys
from sandloom.errors import EnvelopeRefused, KeyNotFound, KeyScopeMissing
from sandloom.tenants.recent import KEPT_SECONDS, Recent
from sandloom.tenants.records import ApiKey, KeyScope

_k = api_keys.c


class Keys:
    """Thread-safe. A key that was looked up is known for ``kept_seconds``: for as long a revoked one may still work in
    another process than the one that revoked it."""

    def __init__(self, db: Database, mint: KeyMint, kept_seconds: float = KEPT_SECONDS) -> None:
        self._db = db
        self._mint = mint
        self._known: Recent[str, ApiKey | None] = Recent(self._find, kept_seconds)

    # --- operators ---

    def create(
        self, tenant_id: str, name: str, scopes: Iterable[KeyScope], by: str, lifetime_seconds: int | None = None
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which nobody can show again. Without ``lifetime_seconds`` it does not expire."""
        text = self._mint.new(tenant_id)
        lasts_us = None if lifetime_seconds is None else lifetime_seconds * MICROSECONDS

        def make(connection: Connection) -> ApiKey:
            now = connection.execute(select(now_us())).scalar_one()
            values = {
                "key_id": text.key_id, "tenant_id": tenant_id, "name": name, "hash": self._mint.hash(text),
                "scopes": " ".join(sorted(set(scopes))), "created_by": by[:128], "created_us": now,
                "expires_us": None if lasts_us is None else now + lasts_us, "revoked_us": None,
            }  # fmt: skip
            connection.execute(insert(api_keys).values(values))
            return _key(connection, text.key_id)

        return self._db.write(make), str(text)

    def list(self, tenant_id: str, limit: int, offset: int) -> tuple[list[ApiKey], int]:
        """A page of the tenant's keys, also those that no longer work, newest first, and how many there are."""

        def page(connection: Connection) -> tuple[list[ApiKey], int]:
            mine = _k.tenant_id == tenant_id
            total = connection.execute(select(func.count()).select_from(api_keys).where(mine)).scalar_one()
            query = _KEYS.where(mine).order_by(_k.created_us.desc(), _k.key_id).limit(limit).offset(offset)
            return [_to_key(row) for row in connection.execute(query)], total

        return self._db.read(page)

    def revoke(self, tenant_id: str, key_id: str) -> ApiKey:
        """From now on it is nobody's; one that was revoked before stays as it is. Raises KeyNotFound."""

        def move(connection: Connection) -> ApiKey:
            mine = (_k.key_id == key_id, _k.tenant_id == tenant_id)
            connection.execute(
                update(api_keys).where(*mine, _k.revoked_us.is_(None)).values(revoked_us=now_us(), expires_us=now_us())
            )
            return _key(connection, key_id, tenant_id)

        key = self._db.write(move)
        self._known.forget(key_id)
        return key

    # --- callers ---

    def of_text(self, text: str) -> ApiKey | None:
        """The key, if it works now. Raises Unavailable."""
        given = parse(text)
        if given is None or not self._mint.made(given):
            return None
        key = self._known.get(given.key_id)
        return key if key is not None and key.usable and self._mint.fits(given, key.hash) else None

    def works(self, key_id: str) -> bool:
        """Whether the key can still be used. Raises Unavailable."""
        key = self._known.get(key_id)
        return key is not None and key.usable

    def demand_sender(self, key_id: str) -> None:
        """Raises EnvelopeRefused unless the key works now, KeyScopeMissing unless it may send tasks, Unavailable."""
        key = self._known.get(key_id)
        if key is None or not key.usable:
            raise EnvelopeRefused("the message names a key that is not known here")
        if KeyScope.TASKS not in key.scopes:
            raise KeyScopeMissing.of(KeyScope.TASKS.value)

    def _find(self, key_id: str) -> ApiKey | None:
        row = self._db.read(lambda connection: connection.execute(_KEYS.where(_k.key_id == key_id)).one_or_none())
        return None if row is None else _to_key(row)


_KEYS = select(api_keys, now_us().label("now_us"))


def _key(connection: Connection, key_id: str, tenant_id: str | None = None) -> ApiKey:
    query = _KEYS.where(_k.key_id == key_id)
    row = connection.execute(query if tenant_id is None else query.where(_k.tenant_id == tenant_id)).one_or_none()
    if row is None:
        raise KeyNotFound
    return _to_key(row)


def _to_key(row: Any) -> ApiKey:
    values = dict(row._mapping)
    return ApiKey(**values | {"scopes": frozenset(KeyScope(word) for word in row.scopes.split())})
