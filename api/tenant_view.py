"""Keys and usage in the words of the REST interface."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta

from api.queries import UsageQuery
from sandloom.clock import rfc3339
from sandloom.contracts.refusals import invalid
from sandloom.contracts.tenants import KeyAnswer, UsageGroup, UsageReport, UsageSums
from sandloom.errors import NotFound
from sandloom.tenants.records import ApiKey, UsageQuestion, UsageRow

_EPOCH = date(1970, 1, 1)
#: The days of a question that names none.
_DAYS = 30
_MAX_DAYS = 3660


def key_answer(key: ApiKey) -> KeyAnswer:
    return KeyAnswer(
        key_id=key.key_id,
        tenant_id=key.tenant_id,
        name=key.name,
        scopes=sorted(key.scopes),
        created_by=key.created_by,
        created_at=rfc3339(key.created_us) or "",
        expires_at=rfc3339(key.expires_us),
        revoked_at=rfc3339(key.revoked_us),
        usable=key.usable,
    )


def asked_usage(query: UsageQuery, tenant_id: str, is_operator: bool) -> UsageQuestion:
    """Raises ValidationFailed, and NotFound for a tenant that asks about others."""
    if query.all_tenants and not is_operator:
        raise NotFound
    until = query.until or datetime.now(UTC).date()
    since = query.since or until - timedelta(days=min(_DAYS - 1, (until - _EPOCH).days))
    if not timedelta(0) <= until - since < timedelta(days=_MAX_DAYS):
        raise invalid("since", f"must lie before until, by less than {_MAX_DAYS} days")
    return UsageQuestion(
        tenant_id=None if query.all_tenants else tenant_id,
        first_day=(since - _EPOCH).days,
        end_day=(until - _EPOCH).days + 1,
        group_by=query.group_by,
        label=query.label,
        workspace_scope_id=query.workspace_scope_id,
        sandbox_id=query.sandbox_id,
    )


def usage_report(
    asked: UsageQuestion, query: UsageQuery, found: tuple[list[UsageRow], int, UsageRow]
) -> UsageReport:  # fmt: skip
    rows, total, sums = found
    return UsageReport(
        since=_day(asked.first_day) or "",
        until=_day(asked.end_day - 1) or "",
        group_by=list(asked.group_by),
        label=asked.label,
        groups=[UsageGroup(**asdict(row) | {"day": _day(row.day)}) for row in rows],
        sums=UsageSums(**{name: getattr(sums, name) for name in UsageSums.model_fields}),
        total=total,
        limit=query.limit,
        offset=query.offset,
    )


def _day(number: int | None) -> str | None:
    return None if number is None else (_EPOCH + timedelta(days=number)).isoformat()
