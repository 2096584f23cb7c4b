"""Requests made from the OpenAPI document, some of them moved into a sandbox that is there, and what is asked of their
answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from schemathesis.core.transport import Response
from schemathesis.generation.case import Case
from schemathesis.specs.openapi import checks

from api.blueprints import GROUPS
from api.problems import SERVER_TITLES
from sandloom import Client
from sandloom.sdk import Sandbox

OPERATIONS = {operation.name: operation for group in GROUPS for operation in group.operations}
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
#: Of HTTP itself, and of the servers that speak it.
OF_HTTP = frozenset({"content-type", "content-length", "date", "server", "connection", "transfer-encoding", "via"})
#: The only 5xx that a request may ask for: a profile that no worker has.
ASKED_FOR = ("resolve_sandbox", 503, "NO_SANDBOX_WORKER_AVAILABLE")
ARGV = (["true"], ["sh", "-c", "echo out; echo err >&2; exit 3"], ["cat"], ["no-such-program"])
PLACES = ("/workspace", "/workspace/file", "/workspace/tree", "/workspace/tree/deep", "/workspace/new", "/envs")


@dataclass(frozen=True)
class Home:
    """What there is: a quiet sandbox with some files and a command that has ended."""

    box: Sandbox
    exec_id: str

    @classmethod
    def furnish(cls, client: Client) -> Home:
        """Whatever became of it, and of what its tenant may have, before."""
        client.tenant.set_quotas()
        box = client.sandbox("documented")
        box.files.mkdir("/workspace/tree/deep", parents=True)
        box.files.write("/workspace/file", "text\n")
        box.run(["mkdir", "-p", "/envs/tools"])
        return cls(box, box.run("echo done", exec_id="documented").exec_id)

    def move_in(self, case: Case, draw: st.DataObject) -> None:
        """Let the case name what there is, wherever it names such a thing."""
        names = {"sandbox_id": self.box.id, "exec_id": self.exec_id, "worker_id": self.box.route.worker_id}
        places = {name: draw.draw(st.sampled_from(PLACES)) for name in ("path", "source", "destination")}
        argv = draw.draw(st.sampled_from(ARGV))
        known = {**places, "generation": self.box.generation, "argv": argv, "cwd": "/workspace"}
        case.path_parameters = _replaced(case.path_parameters, names)
        case.query = _replaced(case.query, known)
        case.body = _replaced(case.body, {**known, "source_path": "/envs", "profile": "coding-default"})


def check_answer(case: Case, response: Response) -> None:
    """Raises AssertionError for what the document does not say."""
    operation = OPERATIONS[str(case.operation.definition.raw["operationId"])]
    code = response.json().get("code") if response.status_code >= 400 else None
    told = f"{case.as_curl_command()}\n{response.status_code} {response.content[:2000]!r}"
    if response.status_code >= 500:
        assert (operation.name, response.status_code, code) == ASKED_FOR, told
    if code is not None:
        documented = {error.code for error in operation.errors if error.status == response.status_code}
        assert code in documented or response.status_code in SERVER_TITLES, told
    entry = case.operation.schema.raw_schema["paths"][operation.path][operation.method.lower()]
    known = {name.lower() for name in entry["responses"][str(response.status_code)].get("headers", {})}
    assert {name.lower() for name in response.headers} - known - OF_HTTP == set(), told


def _replaced(given: Any, known: dict[str, Any]) -> Any:
    return {name: known.get(name, value) for name, value in given.items()} if isinstance(given, dict) else given
