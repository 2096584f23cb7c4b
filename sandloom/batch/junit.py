"""Results as JUnit XML, one test case per job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

#: XML 1.0 has no way to write these.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: ERROR and WORKER_LOST say nothing about the command; the others do.
_ERRORS = frozenset({"ERROR", "WORKER_LOST"})


def junit(name: str, results: Iterable[Mapping[str, Any]], counts: Mapping[str, int], seconds: float) -> Iterator[str]:
    """Pieces of the document. ``counts``: results by status."""
    errors = sum(counts.get(status, 0) for status in _ERRORS)
    skipped, total = counts.get("SKIPPED", 0), sum(counts.values())
    failures = total - errors - skipped - counts.get("SUCCEEDED", 0)
    numbers = f'tests="{total}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="{seconds:.3f}"'
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites {numbers}>\n<testsuite name={_attribute(name)} {numbers}>\n"
    for result in results:
        yield from _case(name, result)
    yield "</testsuite>\n</testsuites>\n"


def _case(suite: str, result: Mapping[str, Any]) -> Iterator[str]:
    seconds = (result["duration_ms"] or 0) / 1000
    yield f'<testcase classname={_attribute(suite)} name={_attribute(result["id"])} time="{seconds:.3f}">'
    status, message = result["status"], message_of(result)
    if status == "SKIPPED":
        yield f"<skipped message={_attribute(message)}/>"
    elif status != "SUCCEEDED":
        element = "error" if status in _ERRORS else "failure"
        yield f"<{element} type={_attribute(status)} message={_attribute(message)}/>"
    for element, text in (("system-out", result["stdout"]), ("system-err", result["stderr"])):
        if text:
            yield f"<{element}>{escape(_xml(text))}</{element}>"
    yield "</testcase>\n"


def message_of(result: Mapping[str, Any]) -> str:
    """Why a job did not succeed, in one line."""
    if result["status"] == "FAILED" and result["reason"] == "exit":
        return f"exit code {result['exit_code']}"
    parts = [result["error"], result["detail"] or result["reason"]]
    return ": ".join(part for part in parts if part) or str(result["status"]).lower()


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
