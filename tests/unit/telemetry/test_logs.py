"""What reaches a log line, and what does not."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from sandloom.telemetry import configure, current_request_id, get_logger, is_request_id, redact, request_id

SECRET = "s3cret-value"


@pytest.fixture
def json_logs() -> Iterator[Any]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    output = io.StringIO()
    configure("info", "json", output)

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in output.getvalue().splitlines()]

    yield lines
    root.handlers[:], level = before
    root.setLevel(level)


def test_a_line_is_one_json_object_with_the_request_id(json_logs: Any) -> None:
    with request_id("req-1"):
        get_logger("part").info("happened", count=3)
    get_logger("part").debug("too small")
    (line,) = json_logs()
    assert (line["event"], line["count"], line["request_id"], line["logger"]) == ("happened", 3, "req-1", "part")


def test_lines_of_libraries_carry_the_request_id_too(json_logs: Any) -> None:
    with request_id("req-2"):
        logging.getLogger("celery.thing").warning("lost %s", f"redis://:{SECRET}@host/0")
    (line,) = json_logs()
    assert line["request_id"] == "req-2"
    assert line["event"] == "lost redis://***@host/0"


def test_secrets_never_reach_a_line(json_logs: Any) -> None:
    log = get_logger("part")
    log.info("a", token=SECRET, headers={"Authorization": f"Bearer {SECRET}", "X-Provider-Key": SECRET})
    log.info(
        "b", body={"sensitive_env": {"K": SECRET}, "env": {"K": SECRET}, "stdin": SECRET, "deep": [{"sig": SECRET}]}
    )
    log.info(f"c Bearer {SECRET}", url=f"postgresql+psycopg2://u:{SECRET}@h/d")
    try:
        raise RuntimeError(f"refused amqp://u:{SECRET}@h//")
    except RuntimeError:
        log.exception("d")
    lines = json_logs()
    assert len(lines) == 4
    assert SECRET not in json.dumps(lines)
    assert "RuntimeError" in lines[3]["exception"]


def test_redaction_ends_at_some_depth_without_showing_the_rest() -> None:
    deep: Any = {"token": SECRET}
    for _ in range(20):
        deep = {"x": deep}
    assert SECRET not in json.dumps(redact(deep))


def test_redaction_keeps_what_is_no_secret() -> None:
    value = {"argv": ["ls", "-l"], "count": 1, "url": "http://host/path", "none": None}
    assert redact(value) == value


@pytest.mark.parametrize("text", ["", "a b", "a\nb", "ü", "x" * 129, None])
def test_a_request_id_that_is_not_sane_is_replaced(text: str | None) -> None:
    assert not is_request_id(text)
    with request_id(text) as chosen:
        assert chosen != text
        assert current_request_id() == chosen
        assert is_request_id(chosen)
    assert current_request_id() is None
