# Made from sandloom/sdk/aio/tenants.py by scripts/sync_sdk.py: change that one.
"""The tenant that a client speaks for: its keys and quotas, which are operators' business, and its usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from sandloom.contracts.tenants import KeyAnswer, KeyList, NewKeyAnswer, QuotasAnswer, UsageReport

if TYPE_CHECKING:
    from sandloom.sdk.transport import Transport


class TenantCalls:
    """Made by the client, whose ``tenant`` says which tenant an operator means."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_key(
        self, name: str, *, scopes: Sequence[str] = ("read", "write", "tasks"), lifetime_seconds: int | None = None
    ) -> NewKeyAnswer:
        """A new key; nobody can show its ``key`` again."""
        body = {"name": name, "scopes": list(scopes), "lifetime_seconds": lifetime_seconds}
        return NewKeyAnswer.model_validate((self._transport.call("POST", "/admin/keys", json=body)).json())

    def list_keys(self, *, limit: int = 100, offset: int = 0) -> list[KeyAnswer]:
        """One page of the keys, the newest first, also those that no longer work."""
        params = {"limit": limit, "offset": offset}
        answer = self._transport.call("GET", "/admin/keys", params=params, safe=True)
        return KeyList.model_validate(answer.json()).keys

    def revoke_key(self, key_id: str) -> KeyAnswer:
        """End a key for good."""
        path = f"/admin/keys/{quote(key_id, safe='')}"
        return KeyAnswer.model_validate((self._transport.call("DELETE", path, safe=True)).json())

    def quotas(self) -> QuotasAnswer:
        """What the tenant may have; None is any."""
        return QuotasAnswer.model_validate((self._transport.call("GET", "/admin/quotas", safe=True)).json())

    def set_quotas(self, **quotas: int | None) -> QuotasAnswer:
        """These and no others."""
        answer = self._transport.call("PUT", "/admin/quotas", json=quotas, safe=True)
        return QuotasAnswer.model_validate(answer.json())

    def usage(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        group_by: Sequence[str] = (),
        label: str | None = None,
        scope: str | None = None,
        sandbox_id: str | None = None,
        all_tenants: bool = False,
        limit: int = 200,
        offset: int = 0,
    ) -> UsageReport:
        """What was used from one day to another (UTC, both included; the last 30 days unless given), in groups by
        ``tenant``, ``scope``, ``sandbox`` and ``day``, and by the value of a label. ``all_tenants``: operators only."""
        params = {
            "since": since, "until": until, "group_by": ",".join(group_by) or None, "label": label,
            "workspace_scope_id": scope, "sandbox_id": sandbox_id, "all_tenants": "true" if all_tenants else None,
            "limit": limit, "offset": offset,
        }  # fmt: skip
        return UsageReport.model_validate((self._transport.call("GET", "/usage", params=params, safe=True)).json())
