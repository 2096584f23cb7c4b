"""What operators do with tenants, and what tenants used. ``X-Sandbox-Tenant`` says which tenant an operator means."""

from __future__ import annotations

from dataclasses import asdict

from flask import Response

from api import raises
from api.answers import answer
from api.operations import Call, Group
from api.queries import NoQuery, Page, UsageQuery
from api.tenant_view import asked_usage, key_answer, usage_report
from sandloom.contracts.tenants import (
    KeyAnswer,
    KeyBody,
    KeyList,
    NewKeyAnswer,
    QuotasAnswer,
    QuotasBody,
    UsageReport,
)  # fmt: skip
from sandloom.tenants.records import KeyScope, Quotas

group = Group("tenants", "Tenants")


@group.operation("POST", "/admin/keys", {200: NewKeyAnswer}, operators_only=True)
def create_key(call: Call, query: NoQuery, body: KeyBody) -> Response:
    """Make a key for the tenant; the answer is the only one that has it."""
    scopes = [KeyScope(scope) for scope in body.scopes]
    key, text = call.services.keys.create(call.tenant_id, body.name, scopes, call.principal.by, body.lifetime_seconds)
    return answer(NewKeyAnswer(**key_answer(key).model_dump(), key=text))


@group.operation("GET", "/admin/keys", {200: KeyList}, operators_only=True)
def list_keys(call: Call, query: Page) -> Response:
    """List the tenant's keys, also those that no longer work."""
    keys, total = call.services.keys.list(call.tenant_id, query.limit, query.offset)
    page = [key_answer(key) for key in keys]
    return answer(KeyList(keys=page, total=total, limit=query.limit, offset=query.offset))


@group.operation("DELETE", "/admin/keys/<key_id>", {200: KeyAnswer}, raises=raises.OF_KEY, operators_only=True)
def revoke_key(call: Call, key_id: str, query: NoQuery) -> Response:
    """End a key of the tenant for good."""
    return answer(key_answer(call.services.keys.revoke(call.tenant_id, key_id)))


@group.operation("GET", "/admin/quotas", {200: QuotasAnswer}, operators_only=True)
def get_quotas(call: Call, query: NoQuery) -> Response:
    """Show what the tenant may have."""
    return answer(QuotasAnswer(tenant_id=call.tenant_id, **asdict(call.services.tenants.get(call.tenant_id))))


@group.operation("PUT", "/admin/quotas", {200: QuotasAnswer}, operators_only=True)
def set_quotas(call: Call, query: NoQuery, body: QuotasBody) -> Response:
    """Say what the tenant may have; a bound that is left out is none."""
    call.services.tenants.set(call.tenant_id, Quotas(**body.model_dump()))
    return answer(QuotasAnswer(tenant_id=call.tenant_id, **body.model_dump()))


@group.operation("GET", "/usage", {200: UsageReport})
def get_usage(call: Call, query: UsageQuery) -> Response:
    """Sum up what was used, in groups."""
    asked = asked_usage(query, call.tenant_id, call.principal.is_operator)
    return answer(usage_report(asked, query, call.services.usage.report(asked, query.limit, query.offset)))
