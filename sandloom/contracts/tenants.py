"""Bodies and answers about tenants: keys, quotas, usage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from sandloom.contracts.rest import Answer, Body, Text

Scope = Literal["read", "write", "tasks"]
ALL_SCOPES: list[Scope] = ["read", "write", "tasks"]
Bound = Annotated[int, Field(ge=0, le=2**62, strict=True)] | None


def _distinct(scopes: list[Scope]) -> list[Scope]:
    if len(set(scopes)) != len(scopes):
        raise ValueError("must not repeat a scope")
    return scopes


class KeyBody(Body):
    """``name``: for people. ``read``: what changes nothing; ``write``: everything else; ``tasks``: signed messages."""

    name: Annotated[Text, StringConstraints(min_length=1, max_length=64)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3), AfterValidator(_distinct)] = ALL_SCOPES
    lifetime_seconds: Annotated[int, Field(ge=1, le=315_360_000, strict=True)] | None = None


class KeyAnswer(Answer):
    key_id: str
    tenant_id: str
    name: str
    scopes: list[str]
    created_by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    usable: bool


class NewKeyAnswer(KeyAnswer):
    key: str = Field(description="shown this once; only a hash is kept", repr=False)


class KeyList(Answer):
    keys: list[KeyAnswer]
    total: int
    limit: int
    offset: int


class QuotasBody(Body):
    """Null or left out: no bound."""

    sandboxes: Bound = None
    open_execs: Bound = None
    queued_execs: Bound = None
    cpu_seconds_a_day: Bound = None
    model_tokens_a_day: Bound = None
    storage_bytes: Bound = None


class QuotasAnswer(Answer):
    tenant_id: str
    sandboxes: int | None
    open_execs: int | None = Field(description="commands that have not ended")
    queued_execs: int | None = Field(description="commands that wait")
    cpu_seconds_a_day: int | None
    model_tokens_a_day: int | None
    storage_bytes: int | None


class UsageSums(Answer):
    execs: int
    cpu_ms: int
    wall_ms: int
    memory_mib_ms: int = Field(description="each command's peak, for as long as it ran")
    io_bytes: int
    egress_bytes: int
    model_tokens: int
    stored_byte_days: int = Field(description="of each day the most that was measured, added up")


class UsageGroup(UsageSums):
    """What was not grouped by is null; so is the label of what has none."""

    tenant_id: str | None
    workspace_scope_id: str | None
    sandbox_id: str | None
    day: str | None
    label: str | None


class UsageReport(Answer):
    since: str
    until: str
    group_by: list[str]
    label: str | None
    groups: list[UsageGroup]
    sums: UsageSums
    total: int
    limit: int
    offset: int
