"""A template over REST, with nothing but the standard library: built in one sandbox, mounted in another.

SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… python3 examples/templates.py
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
import uuid
from typing import Any

BASE = os.environ.get("SANDBOX_BASE_URL", "http://127.0.0.1:8080").rstrip("/") + "/api/v1"
TOKEN = os.environ.get("SANDBOX_INTERNAL_TOKEN", "")

Answer = dict[str, Any]
BUILD = """
python3 -m venv --without-pip /envs/tools
echo 'ANSWER = 42' > /envs/tools/answer.py
"""
USE = "PYTHONPATH=/envs/tools /envs/tools/bin/python -c 'import answer, sys; print(answer.ANSWER, sys.prefix)'"
CHANGE = "touch /envs/tools/new; rm -rf /envs/tools/answer.py; mv /envs/tools /envs/other"


def call(method: str, place: str, body: Answer | None = None) -> Answer:
    """One call; a problem of the service ends the program with its code."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(BASE + place, data, headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=700) as response:
            answer: Answer = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        sys.exit(f"{method} {place}: {problem.get('code', error.code)}: {problem.get('detail', '')}")
    except urllib.error.URLError as error:
        sys.exit(f"{BASE} does not answer: {error.reason}")


def sandbox(name: str) -> tuple[str, int]:
    route = call("POST", "/sandboxes/resolve", {"sandbox_id": name, "workspace_scope_id": "example"})
    call("POST", f"/sandboxes/{name}", {"generation": route["generation"]})
    return f"/sandboxes/{name}", route["generation"]


def run(place: str, generation: int, script: str) -> Answer:
    body = {"exec_id": f"run-{uuid.uuid4().hex}", "generation": generation, "argv": ["sh", "-c", script]}
    return call("POST", f"{place}/exec", body)


def main() -> None:
    mark = uuid.uuid4().hex[:8]
    builder, generation = sandbox(f"builder-{mark}")
    user, user_generation = sandbox(f"user-{mark}")

    built = run(builder, generation, BUILD)
    print(f"built: {built['status']} {built['stderr']}".rstrip())
    wanted = {"generation": generation, "name": "tools", "source_path": "/envs/tools", "labels": {"example": mark}}
    published = call("POST", f"{builder}/templates", wanted)
    print(f"published: {published['name']}@{published['digest'][:18]}… of {published['size_bytes']} bytes")

    pinned = f"tools@{published['digest']}"
    attached = call("PUT", f"{user}/templates", {"generation": user_generation, "templates": [pinned]})
    print(f"attached: {[found['mount_target'] for found in attached['templates']]}")
    print(f"used: {run(user, user_generation, USE)['stdout']!r}")
    run(user, user_generation, CHANGE)
    print(f"after trying to change it: {run(user, user_generation, USE)['stdout']!r}")

    print(f"listed: {[found['name'] for found in call('GET', '/templates')['templates']]}")
    call("DELETE", "/templates/tools")
    for place in (builder, user):
        call("DELETE", place)
    print("unpublished and released")


if __name__ == "__main__":
    main()
