"""The life of a sandbox over REST, with nothing but the standard library.

    SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… python3 examples/quickstart.py

``sandloom up`` starts a service, and says where the file with its token is.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

BASE = os.environ.get("SANDBOX_BASE_URL", "http://127.0.0.1:8080").rstrip("/") + "/api/v1"
TOKEN = os.environ.get("SANDBOX_INTERNAL_TOKEN", "")

Answer = dict[str, Any]


def call(method: str, place: str, body: Answer | None = None, **query: object) -> Answer:
    """One call; a problem of the service ends the program with its code."""
    with _open(method, place, body, query) as response:
        answer: Answer = json.load(response)
        return answer


def events(place: str) -> Iterator[tuple[str, Answer]]:
    """Kind and data of each event, until the command has ended. See the SDK for one that reconnects."""
    kind = ""
    with _open("GET", place, None, {}) as response:
        for raw in response:
            name, _, value = raw.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data" and kind == "end":
                return
            elif name == "data":
                yield kind, json.loads(value)


def _open(method: str, place: str, body: Answer | None, query: dict[str, object]) -> Any:
    url = f"{BASE}{place}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        # Without a proxy: the service is usually near.
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=330)
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        sys.exit(f"{method} {place}: {problem.get('code', error.code)}: {problem.get('detail', '')}")
    except urllib.error.URLError as error:
        sys.exit(f"{BASE} does not answer: {error.reason}")


def exec_body(generation: int, *argv: str, **more: object) -> Answer:
    """``exec_id`` is chosen here, so that sending the same call again never runs the command twice."""
    return {"exec_id": f"run-{uuid.uuid4()}", "generation": generation, "argv": list(argv), **more}


def main() -> None:
    sandbox_id = f"quickstart-{uuid.uuid4().hex[:8]}"
    route = call("POST", "/sandboxes/resolve", {"sandbox_id": sandbox_id, "workspace_scope_id": "examples"})
    path, generation = f"/sandboxes/{sandbox_id}", route["generation"]
    try:
        route = call("POST", path, {"generation": generation})
        print(f"{sandbox_id} is {route['status']} on {route['worker_id']}, generation {generation}")

        done = call("POST", f"{path}/exec", exec_body(generation, "sh", "-c", "echo hello; echo $((6 * 7)); exit 3"))
        print(f"ran: {done['status']}, exit code {done['exit_code']}, stdout {done['stdout']!r}")

        work = exec_body(generation, "sh", "-c", "sleep 1; echo slept", background=True)
        record = call("POST", f"{path}/exec", work)
        while record["finished_at"] is None:
            record = call("GET", f"{path}/exec/{record['exec_id']}", wait=10)
        print(f"polled: {record['status']}, stdout {record['stdout']!r}")

        loop = "for i in 1 2 3; do echo line $i; sleep 0.2; done"
        record = call("POST", f"{path}/exec", exec_body(generation, "sh", "-c", loop, background=True))
        for kind, data in events(f"{path}/exec/{record['exec_id']}/events"):
            print(f"event: {kind} {data.get('text', data.get('status', ''))!r}")

        content = base64.b64encode("grüße\n".encode()).decode()
        file = {"generation": generation, "path": "/workspace/greeting.txt", "content_base64": content}
        call("PUT", f"{path}/files", file)
        read = call("GET", f"{path}/files", path="/workspace/greeting.txt", generation=generation)
        print(f"read back: {base64.b64decode(read['content_base64']).decode()!r}")

        move = {"source": "/workspace/greeting.txt", "destination": "/workspace/moved.txt"}
        call("POST", f"{path}/files/move", {"generation": generation, **move})
        listing = call("GET", f"{path}/files/list", path="/workspace", generation=generation)
        print(f"listed: {[entry['name'] for entry in listing['entries']]}")
        call("POST", f"{path}/files/delete", {"generation": generation, "path": "/workspace/moved.txt"})
        listing = call("GET", f"{path}/files/list", path="/workspace", generation=generation)
        print(f"after deleting: {[entry['name'] for entry in listing['entries']]}")
    finally:
        released = call("DELETE", path, generation=generation)
        print(f"released: {released['status']}")


if __name__ == "__main__":
    main()
