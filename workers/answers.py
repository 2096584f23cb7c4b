"""Domain records as the JSON that task results and replies carry; the same fields as the REST answers."""

from __future__ import annotations

from typing import Any

from sandloom.execs import answers
from sandloom.execs.records import Exec
from sandloom.execution.file_entries import Entry
from sandloom.execution.listing import Page
from sandloom.sandboxes.records import Route


def route_answer(route: Route) -> dict[str, Any]:
    return answers.route_answer(route).model_dump(mode="json")


def exec_answer(record: Exec) -> dict[str, Any]:
    """With output, if the record has it, as text in which what is not UTF-8 is replaced."""
    return answers.exec_answer(record).model_dump(mode="json")


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
