"""Searches through a sandbox's files: fenced, on a lane of their own, since each may take seconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from sandloom.contracts.files import GrepBody, Pattern, shown
from sandloom.contracts.rest import Name
from workers.answers import entry_answer
from workers.patterns import line_search
from workers.reception import Lane
from workers.tasks.files import PathArgs, looking
from workers.tasks.requests import Call, public


class GlobArgs(PathArgs):
    pattern: Pattern
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000


class GrepArgs(GrepBody):
    sandbox_id: Name


@public("sandloom.files.glob", Lane.SEARCH, GlobArgs)
def glob(call: Call[GlobArgs]) -> dict[str, Any]:
    args = call.args
    limit = min(args.limit, call.node.settings.max_list_entries)
    with looking(call) as files:
        found = files.trees.glob(args.place, args.pattern, limit)
    entries = [entry_answer(entry) for entry in found.entries]
    return {"path": shown(args.place), "pattern": args.pattern, "entries": entries, "truncated": found.truncated}


@public("sandloom.files.grep", Lane.SEARCH, GrepArgs)
def grep(call: Call[GrepArgs]) -> dict[str, Any]:
    args = call.args
    search = line_search(args.pattern)
    with looking(call) as files:
        found = files.trees.grep(args.place, search, args.glob, args.max_matches)
    return {"path": shown(args.place), "pattern": args.pattern, **asdict(found)}
