"""Sandboxes and commands as the answers that the REST API and the tasks give."""

from __future__ import annotations

import base64
from typing import Literal, cast

from sandloom.clock import rfc3339
from sandloom.contracts.rest import ExecAnswer, RouteAnswer, UsageAnswer
from sandloom.execs.records import Exec
from sandloom.sandboxes.records import Route

Encoding = Literal["utf-8", "base64"]
_USAGE = frozenset(UsageAnswer.model_fields)


# model_construct, because records are right already and these answers are the most frequent ones.
def route_answer(route: Route) -> RouteAnswer:
    return RouteAnswer.model_construct(
        sandbox_id=route.key.sandbox_id,
        workspace_scope_id=route.workspace_scope_id,
        worker_id=route.worker_id,
        worker_epoch=route.worker_epoch,
        worker_endpoint=route.queue,
        expires_at=rfc3339(route.expires_us),
        generation=route.generation,
        sandbox_uid=route.sandbox_uid,
        status=str(route.status),
        storage_mode=cast(Literal["local", "shared"], route.storage_mode),
        profile_id=route.profile_id,
        profile_hash=route.profile_hash,
        workspace=cast(Literal["new", "kept", "restored", "lost"], str(route.workspace)),
    )


def exec_answer(record: Exec, encoding: Encoding = "utf-8") -> ExecAnswer:
    """``encoding``: ``utf-8`` (with replacement) or ``base64`` (the exact bytes)."""
    return ExecAnswer.model_construct(
        sandbox_id=record.key.sandbox_id,
        exec_id=record.key.exec_id,
        generation=record.generation,
        status=str(record.status),
        argv=list(record.request.argv),
        exec_scope=record.exec_scope,
        exit_code=record.exit_code,
        signal=record.signal,
        reason=record.reason,
        detail=record.detail,
        error=record.error,
        stdout=_text(record.stdout, encoding),
        stderr=_text(record.stderr, encoding),
        encoding=encoding,
        truncated=record.truncated,
        duration_ms=record.duration_ms,
        queued_ms=None if record.started_us is None else max(0, (record.started_us - record.queued_us) // 1000),
        usage=_usage(record),
        labels=dict(record.request.labels),
        last_seq=record.last_seq,
        created_at=rfc3339(record.queued_us) or "",
        started_at=rfc3339(record.started_us),
        finished_at=rfc3339(record.finished_us),
    )


def _usage(record: Exec) -> UsageAnswer | None:
    if not record.usage:
        return None
    return UsageAnswer.model_construct(**{k: v for k, v in record.usage.items() if k in _USAGE})


def _text(data: bytes | None, encoding: str) -> str | None:
    if data is None:
        return None
    return base64.b64encode(data).decode() if encoding == "base64" else data.decode("utf-8", "replace")
