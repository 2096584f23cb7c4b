"""Requests that no well-meaning client sends, and one connection to send them over."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from api.operations import Operation
from tests.integration.api.servers import TOKEN

IDS = [
    "box", "run-1", "ab", "a" * 128, "a" * 129, "a" * 3000, "resolve", "mcp", "diagnostics", "..", ".", "a/b", "a%2Fb",
    "\x00\x00\x00", "ä" * 5, "a b c", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "' OR 1=1 --", "%",
    "%ff%fe%fd", "\n\r\t", "x\x7fy", "🦀🦀🦀",
]  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1.5, -0.0, 1e308, "", " ", "0", "1", "-1", "1.0", "null",
    "box", "a" * 200, "a" * 70_000, "\x00", "a\x00b", "\ud800", "\udfff\ud800", "..", "/", "//", "/workspace",
    "/workspace/../etc", "/workspace/" + "a" * 5000, "/etc/passwd", "/workspace/a\nb", "é", "🦀", "%00", "%", "'; --",
    [], [[]], [None], ["\x00"], ["\ud800"], [1], {}, {"a": 1}, {"\x00": "x"}, {"\ud800": "x"}, {"A": "\x00"},
    {"A": "\ud800"}, {"": ""}, {"LD_PRELOAD": "/x"}, {"A" * 300: "x"}, ["a"] * 300, {f"A{i}": "x" for i in range(200)},
]  # fmt: skip

TEMPLATE: dict[str, Any] = {
    "sandbox_id": "box", "workspace_scope_id": "scope", "profile": "coding-default", "exec_id": "run-1",
    "generation": 1, "argv": ["true"], "cwd": "/workspace", "env": {"A": "b"}, "sensitive_env": {}, "background": True,
    "timeout_seconds": 5, "exec_scope": "one", "stdin": "x", "stdin_base64": "eA==", "labels": {"a": "b"},
    "limits": {"pids": 5}, "egress": {"allow": ["a"]}, "model_access": {"provider": "x"}, "path": "/workspace/a",
    "content_base64": "eA==", "mode": 384, "parents": True, "recursive": True, "source": "/workspace/a",
    "destination": "/workspace/b", "overwrite": True,
    "pattern": "a", "glob": "*.py", "max_matches": 5, "old": "a", "new": "b", "count": 1,
}  # fmt: skip

BODIES: list[bytes] = [
    b"", b"{", b"}", b"[]", b"null", b"1", b'"x"', b"{}{}", b"\x00", b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}",
    b"{\xff}",
    b'{"a": NaN}', b'{"a": Infinity}', b'{"generation": -Infinity}', b'{"generation": 1, "generation": 1}',
    b'{"generation": ' + b"9" * 10_000 + b"}", b"[" * 50_000, b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
    b'{"sandbox_id": "\\ud800", "workspace_scope_id": "s"}', b'{"sandbox_id": "a\\u0000b", "workspace_scope_id": "s"}',
    b'{"\\ud800\\ud800": 1}', b'{"sandbox_id": "' + b"a" * (1 << 20) + b'"}', b'{"generation": 1e400}',
    b'{"generation": 1.0}', b'{"generation": "1"}', b'{"generation": true}', b"a=b&c=d", b"--x\r\n\r\n--x--",
]  # fmt: skip

CONTENT_TYPES = [
    None, "application/json; charset=utf-16", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
    "application/json; charset=", "application/JSON", "application/json-patch+json", ";", "a" * 300, "\xff",
]  # fmt: skip


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


class Sender:
    """One kept-alive connection; every reply must be below 500, and a problem when it is an error."""

    def __init__(self, host_port: tuple[str, int], tenant_id: str) -> None:
        self._tenant = tenant_id
        self._connection = http.client.HTTPConnection(*host_port, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
        sent = {"Authorization": f"Bearer {TOKEN}", "X-Sandbox-Tenant": self._tenant, **(headers or {})}
        for last in (False, False, False, True):
            try:
                # Who refuses a body answers before it has come, and stops reading.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._connection.request(method, target, body, {k: v.encode("latin-1") for k, v in sent.items()})
                answer = self._connection.getresponse()
                reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
                break
            except (http.client.HTTPException, OSError):
                # The server may close a connection whose body it did not read; it must still serve the next one.
                self._connection.close()
                if last:
                    raise
        context = f"{method} {target[:300]} {(body or b'')[:300]!r} -> {reply.status} {reply.body[:300]!r}"
        assert reply.status < 500, context
        assert reply.headers.get("x-request-id"), context
        if reply.status >= 400 and method != "HEAD":
            assert reply.headers["content-type"] == "application/problem+json", context
            problem = json.loads(reply.body)
            assert problem["status"] == reply.status, context
            assert problem["code"], context
        return reply


def target(operation: Operation, ids: dict[str, str] | None = None, query: dict[str, Any] | None = None) -> str:
    """The address with ids and query percent-encoded."""
    path = operation.rule
    for name in operation.path_names:
        value = (ids or {}).get(name, "box" if name == "sandbox_id" else "run-1")
        path = path.replace(f"<{name}>", quote(value.encode("utf-8", "surrogatepass"), safe="%"))
    pairs = [
        (k.encode("utf-8", "surrogatepass"), str(v).encode("utf-8", "surrogatepass")) for k, v in (query or {}).items()
    ]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def valid_body(operation: Operation) -> dict[str, Any]:
    """A body of this operation in which every field is acceptable on its own."""
    fields = operation.body.model_fields if operation.body is not None else {}
    return {
        name: TEMPLATE[name]
        for name in fields
        if name in TEMPLATE and name not in ("stdin_base64", "egress", "model_access")
    }


def valid_query(operation: Operation) -> dict[str, Any]:
    fields = operation.query.model_fields if operation.query is not None else {}
    known = {"path": "/workspace/a", "generation": 7, "pattern": "*"}
    return {name: known[name] for name in fields if name in known}
