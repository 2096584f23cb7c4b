"""Domain records as the JSON that task results and replies carry; the same fields as the REST answers."""

from __future__ import annotations

from typing import Any, cast

from sandloom.clock import rfc3339
from sandloom.contracts.rest import ExecAnswer, RouteAnswer, UsageAnswer
from sandloom.execs.records import Exec
from sandloom.execution.file_entries import Entry
from sandloom.execution.listing import Page
from sandloom.sandboxes.records import Route


def route_answer(route: Route) -> dict[str, Any]:
    return RouteAnswer.model_construct(
        sandbox_id=route.key.sandbox_id,
        workspace_scope_id=route.workspace_scope_id,
        worker_id=route.worker_id,
        worker_epoch=route.worker_epoch,
        worker_endpoint=route.queue,
        expires_at=rfc3339(route.expires_us),
        generation=route.generation,
        sandbox_uid=route.sandbox_uid,
        status=route.status.value,
        storage_mode=cast(Any, route.storage_mode),
        profile_id=route.profile_id,
        profile_hash=route.profile_hash,
        workspace=cast(Any, route.workspace),
    ).model_dump(mode="json")


def exec_answer(record: Exec) -> dict[str, Any]:
    """With output, if the record has it, as text in which what is not UTF-8 is replaced."""
    usage = {name: value for name, value in record.usage.items() if name in UsageAnswer.model_fields}
    started_us = record.started_us
    return ExecAnswer.model_construct(
        sandbox_id=record.key.sandbox_id,
        exec_id=record.key.exec_id,
        generation=record.generation,
        status=record.status.value,
        argv=list(record.request.argv),
        exec_scope=record.exec_scope,
        exit_code=record.exit_code,
        signal=record.signal,
        reason=record.reason,
        detail=record.detail,
        error=record.error,
        stdout=_text(record.stdout),
        stderr=_text(record.stderr),
        truncated=record.truncated,
        duration_ms=record.duration_ms,
        queued_ms=None if started_us is None else max(0, (started_us - record.queued_us) // 1000),
        usage=UsageAnswer.model_construct(**usage) if usage else None,
        labels=dict(record.request.labels),
        last_seq=record.last_seq,
        created_at=str(rfc3339(record.queued_us)),
        started_at=rfc3339(started_us),
        finished_at=rfc3339(record.finished_us),
    ).model_dump(mode="json")


def page_answer(path: str, page: Page) -> dict[str, Any]:
    return {
        "path": path,
        "entries": [entry_answer(entry) for entry in page.entries],
        "total": page.total,
        "has_more": page.has_more,
        "cursor": page.cursor,
    }


def entry_answer(entry: Entry) -> dict[str, Any]:
    return entry._asdict()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
