"""File routes and real commands, with a real worker behind both."""

from __future__ import annotations

import base64
import json
import sys
import tarfile
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.blueprints import GROUPS
from sandloom.settings import Settings
from tests.integration.api.hostile import VALUES, Sender, target, valid_body
from tests.integration.api.servers import TOKEN, environment
from tests.services.account import free_port, passable_directory, remove_tree
from tests.services.process import Process, base_environment
from tests.unit.execution_files.archives import archive as make_archive
from tests.unit.execution_files.archives import info, pieces, unpacked

pytestmark = pytest.mark.bwrap
FILE_OPERATIONS = [op for group in GROUPS for op in group.operations if op.tag == "Files"]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The URL of a whole service in one process."""
    directory = passable_directory("sandloom-files")
    port = free_port()
    variables = environment(f"sqlite:///{directory / 'sandloom.db'}", directory, port)
    variables |= {"SANDBOX_MAX_FILE_API_BYTES": "1000000", "SANDBOX_MAX_RAW_FILE_BYTES": "3000000"}
    argv = [sys.executable, "-m", "sandloom", "up", "--data-dir", str(directory)]
    with Process(argv, log_path=directory / "service.log", env=base_environment(**variables)) as process:
        process.wait_for_output('"event": "serving"')
        yield f"http://127.0.0.1:{Settings.load(variables).port}"
    remove_tree(directory)


class Box:
    """A sandbox of one test."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.name = f"box-{uuid.uuid4().hex[:12]}"
        body = {"sandbox_id": self.name, "workspace_scope_id": "scope"}
        self.generation = int(http.post("/api/v1/sandboxes/resolve", json=body).json()["generation"])

    @property
    def files(self) -> str:
        return f"/api/v1/sandboxes/{self.name}/files"

    def post(self, what: str, **body: Any) -> httpx.Response:
        return self.http.post(f"{self.files}/{what}", json={"generation": self.generation, **body})

    def get(self, path: str, what: str = "", headers: dict[str, str] | None = None, **query: Any) -> httpx.Response:
        params = {"path": path, "generation": self.generation, **query}
        return self.http.get(self.files + what, params=params, headers=headers)

    def put(self, path: str, data: bytes, **more: Any) -> httpx.Response:
        content = base64.b64encode(data).decode()
        body = {"generation": self.generation, "path": path, "content_base64": content, **more}
        return self.http.put(self.files, json=body)

    def put_raw(self, path: str, content: Any, **query: Any) -> httpx.Response:
        params = {"path": path, "generation": self.generation, **query}
        return self.http.put(f"{self.files}/raw", params=params, content=content)

    def run(self, *argv: str) -> dict[str, Any]:
        body = {"exec_id": f"run-{uuid.uuid4().hex}", "generation": self.generation, "argv": list(argv)}
        answer = self.http.post(f"/api/v1/sandboxes/{self.name}/exec", json=body)
        assert answer.status_code == 200, answer.text
        record: dict[str, Any] = answer.json()
        return record


@pytest.fixture
def box(service: str) -> Iterator[Box]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=service, headers=headers, timeout=120, trust_env=False) as http:
        box = Box(http)
        yield box
        assert http.delete(f"/api/v1/sandboxes/{box.name}").status_code == 200


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("size", [0, 10, 256 * 1024, 256 * 1024 + 1, 1_000_000])
def test_a_file_comes_back_as_it_was_and_commands_see_it(box: Box, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    assert box.put("/workspace/f.bin", data).json() == {"path": "/workspace/f.bin", "size_bytes": size}
    assert base64.b64decode(box.get("/workspace/f.bin").json()["content_base64"]) == data
    assert box.run("wc", "-c", "/workspace/f.bin")["stdout"].split()[0] == str(size)
    found = box.get("/workspace/f.bin", "/stat").json()
    assert (found["type"], found["size_bytes"], found["mode"]) == ("file", size, "0600")


def test_limits_of_both_file_routes(box: Box) -> None:
    assert code(box.put("/workspace/f", bytes(1_000_001))) == (413, "SANDBOX_FILE_TOO_LARGE")
    assert box.put_raw("/workspace/f", bytes(2_000_000)).status_code == 200
    assert code(box.get("/workspace/f")) == (413, "SANDBOX_FILE_TOO_LARGE")
    assert code(box.put_raw("/workspace/g", bytes(3_000_001))) == (413, "BODY_TOO_LARGE")
    pieces = (bytes(100_000) for _ in range(31))
    assert box.put_raw("/workspace/g", pieces).status_code == 413
    assert code(box.get("/workspace/g", "/stat")) == (404, "SANDBOX_FILE_NOT_FOUND")


def test_raw_bytes_and_ranges(box: Box) -> None:
    data = bytes(i % 256 for i in range(700_000))
    changed = box.put_raw("/workspace/raw", (data[i : i + 9999] for i in range(0, len(data), 9999)), mode="755")
    assert changed.json()["size_bytes"] == len(data)
    assert box.get("/workspace/raw", "/stat").json()["mode"] == "0755"
    whole = box.get("/workspace/raw", "/raw")
    assert (whole.status_code, whole.content, whole.headers["Accept-Ranges"]) == (200, data, "bytes")
    part = box.get("/workspace/raw", "/raw", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, data[10:20])
    assert part.headers["Content-Range"] == "bytes 10-19/700000"
    tail = box.get("/workspace/raw", "/raw", headers={"Range": "bytes=-5"})
    assert (tail.status_code, tail.content) == (206, data[-5:])
    assert code(box.get("/workspace/raw", "/raw", headers={"Range": "bytes=700000-"})) == (416, "RANGE_NOT_SATISFIABLE")


def test_directories_from_making_to_deleting(box: Box) -> None:
    assert box.post("mkdir", path="/workspace/a/b", parents=True).status_code == 200
    assert code(box.put("/workspace/none/f", b"x")) == (404, "SANDBOX_FILE_NOT_FOUND")
    for name in ("one", "two", "three"):
        box.put(f"/workspace/a/{name}", name.encode())
    page = box.get("/workspace/a", "/list", limit=2, offset=1).json()
    assert ([entry["name"] for entry in page["entries"]], page["total"], page["has_more"]) == (
        ["one", "three"],
        4,
        True,
    )
    assert box.get("/workspace/a", "/list", limit=1001).status_code == 422
    moved = box.post("move", source="/workspace/a/one", destination="/workspace/a/two")
    assert code(moved) == (409, "SANDBOX_FILE_EXISTS")
    assert (
        box.post("move", source="/workspace/a/one", destination="/workspace/a/two", overwrite=True).status_code == 200
    )
    assert base64.b64decode(box.get("/workspace/a/two").json()["content_base64"]) == b"one"
    assert code(box.post("delete", path="/workspace/a")) == (409, "SANDBOX_DIRECTORY_NOT_EMPTY")
    assert box.post("delete", path="/workspace/a", recursive=True).status_code == 200
    assert box.post("delete", path="/workspace", recursive=True).status_code == 400


ELSEWHERE = [
    "/workspace/../etc/passwd",
    "/etc/passwd",
    "workspace/a",
    "/workspace/a\x00b",
    "/workspace/" + "a" * 4096,
    "/",
]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_paths_that_lead_elsewhere_are_400(box: Box, path: str) -> None:
    assert code(box.get(path)) == (400, "SANDBOX_PATH_INVALID")
    assert code(box.put(path, b"x")) == (400, "SANDBOX_PATH_INVALID")
    assert code(box.post("mkdir", path=path)) == (400, "SANDBOX_PATH_INVALID")


def test_what_is_no_regular_file_never_hangs(box: Box) -> None:
    assert box.run("sh", "-c", "mkfifo /workspace/fifo; ln -s /etc/passwd /workspace/link")["exit_code"] == 0
    assert code(box.get("/workspace/fifo")) == (409, "SANDBOX_FILE_KIND_UNSUPPORTED")
    assert box.get("/workspace/link").status_code in (403, 409)
    assert code(box.get("/workspace/fifo", "/raw")) == (409, "SANDBOX_FILE_KIND_UNSUPPORTED")


def test_a_path_that_is_not_utf8_is_named_by_its_bytes(box: Box) -> None:
    assert box.run("sh", "-c", "printf x > /workspace/$(printf 'a\\377'); mkdir /workspace/d")["exit_code"] == 0
    [entry] = [entry for entry in box.get("/workspace", "/list").json()["entries"] if entry["type"] == "file"]
    assert (entry["name"], base64.b64decode(entry["name_base64"])) == ("a\ufffd", b"a\xff")
    named = {"path_base64": entry["path_base64"], "generation": box.generation}
    assert box.http.get(box.files, params=named).json() == {"path": "/workspace/a\ufffd", "content_base64": "eA=="}
    assert box.http.get(f"{box.files}/raw", params=named).content == b"x"
    assert box.http.put(f"{box.files}/raw", params=named, content=b"yes").json()["path"] == "/workspace/a\ufffd"
    changed = box.post("replace", path_base64=entry["path_base64"], old="yes", new="no")
    assert changed.json() == {"path": "/workspace/a\ufffd", "replacements": 1, "size_bytes": 2}
    moved = box.post("move", source_base64=entry["path_base64"], destination="/workspace/d/b")
    assert moved.json() == {"source": "/workspace/a\ufffd", "destination": "/workspace/d/b"}
    assert box.http.get(f"{box.files}/stat", params=named).status_code == 404
    url_form = base64.urlsafe_b64encode(b"/workspace/\xff\xfe\xfb").decode()
    assert box.post("mkdir", path_base64=url_form).status_code == 200
    assert box.post("mkdir", path="/workspace/x", path_base64=url_form).status_code == 422
    assert box.post("mkdir").status_code == 422
    assert box.post("mkdir", path_base64="!").status_code == 422
    assert code(box.post("mkdir", path_base64="Li4=")) == (400, "SANDBOX_PATH_INVALID")


def test_trees_go_in_and_out_as_tar(box: Box) -> None:
    entries = [(f"d{n % 7}/f{n}", bytes([n]) * 3000) for n in range(200)]
    archive = make_archive([*entries, (info("d0/link", tarfile.SYMTYPE, "/etc/passwd"), b"")])
    url = f"/api/v1/sandboxes/{box.name}/archive"
    fence: dict[str, Any] = {"path": "/workspace/tree", "generation": box.generation}
    counts = box.http.put(url, params=fence, content=pieces(archive, 10_000))
    assert counts.json() == {
        "path": "/workspace/tree", "files": 200, "directories": 0, "links": 1, "size_bytes": 600_000, "skipped": 0,
    }  # fmt: skip
    assert box.run("sh", "-c", "cat /workspace/tree/d*/f* | wc -c")["stdout"].strip() == "600000"
    answer = box.http.get(url, params=fence)
    assert answer.headers["Content-Type"] == "application/x-tar"
    found = unpacked(answer.content)
    assert {name: data for name, (kind, data, _) in found.items() if kind == tarfile.REGTYPE} == dict(entries)
    assert found["d0/link"][:2] == (tarfile.SYMTYPE, b"/etc/passwd")
    upwards = make_archive([("../x", b"")])
    assert code(box.http.put(url, params=fence, content=upwards)) == (400, "SANDBOX_ARCHIVE_INVALID")
    assert code(box.http.put(url, params=fence, content=archive[:5000])) == (400, "SANDBOX_ARCHIVE_INVALID")
    assert code(box.http.put(url, params=fence, content=bytes(3_000_001))) == (413, "BODY_TOO_LARGE")
    outside = {**fence, "path": "/home"}
    assert code(box.http.put(url, params=outside, content=archive)) == (400, "SANDBOX_PATH_INVALID")
    missing = {**fence, "path": "/workspace/none"}
    assert code(box.http.get(url, params=missing)) == (404, "SANDBOX_FILE_NOT_FOUND")


def test_an_archive_over_the_bound_is_refused_or_breaks_off(box: Box) -> None:
    url = f"/api/v1/sandboxes/{box.name}/archive"
    fence: dict[str, Any] = {"path": "/workspace", "generation": box.generation}
    assert box.run("truncate", "-s", "4M", "/workspace/hole")["exit_code"] == 0
    assert code(box.http.get(url, params=fence)) == (413, "SANDBOX_FILE_TOO_LARGE")
    assert box.run("sh", "-c", "rm /workspace/hole; truncate -s 2M /workspace/one /workspace/two")["exit_code"] == 0
    with pytest.raises(httpx.RemoteProtocolError):
        box.http.get(url, params=fence)
    assert box.post("delete", path="/workspace/one").status_code == 200
    assert set(unpacked(box.http.get(url, params=fence).content)) == {"two"}


def test_searches_and_edits(box: Box) -> None:
    box.post("mkdir", path="/workspace/src")
    box.put("/workspace/src/a.py", b"x = 1\ny = x + 1\n")
    box.put("/workspace/src/b.txt", b"x")
    found = box.get("/workspace", "/glob", pattern="**/*.py").json()
    assert ([entry["path"] for entry in found["entries"]], found["truncated"]) == (["/workspace/src/a.py"], False)
    assert box.get("/workspace", "/glob", pattern="*", limit=1001).status_code == 422
    assert code(box.get("/workspace", "/glob", pattern="../*")) == (422, "VALIDATION_FAILED")
    lines = box.post("grep", pattern="x$|x [+]", path="/workspace", glob="*.py").json()
    assert [(match["path"], match["line"], match["column"]) for match in lines["matches"]] == [
        ("/workspace/src/a.py", 2, 5)
    ]
    assert (lines["searched"], lines["skipped"], lines["truncated"]) == (1, 0, False)
    refused = box.post("grep", pattern="(")
    assert code(refused) == (422, "VALIDATION_FAILED")
    assert refused.json()["errors"][0]["field"] == "pattern"
    changed = box.post("replace", path="/workspace/src/a.py", old="x", new="zz", count=1)
    assert changed.json() == {"path": "/workspace/src/a.py", "replacements": 1, "size_bytes": 17}
    assert base64.b64decode(box.get("/workspace/src/a.py").json()["content_base64"]) == b"zz = 1\ny = x + 1\n"


def test_an_older_generation_changes_nothing(box: Box) -> None:
    box.generation += 1
    assert code(box.put("/workspace/f", b"x")) == (409, "STALE_SANDBOX_ROUTE")
    assert code(box.get("/workspace", "/list")) == (409, "STALE_SANDBOX_ROUTE")
    box.generation -= 1


def test_no_value_of_any_field_gives_a_5xx(service: str, box: Box) -> None:
    url = httpx.URL(service)
    sender = Sender((url.host, int(url.port or 0)), "default")
    for operation in FILE_OPERATIONS:
        for name in operation.body.model_fields if operation.body is not None else ():
            for value in VALUES:
                body = valid_body(operation) | {"generation": box.generation, name: value}
                address = target(operation, {"sandbox_id": box.name})
                sender.send(operation.method, address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        for value in VALUES if operation.body is None else ():
            if isinstance(value, str) and len(value) < 2500:
                query = {"path": value, "generation": box.generation}
                sender.send(operation.method, target(operation, {"sandbox_id": box.name}, query), b"")
    sender.close()


@pytest.mark.parametrize(
    ("argv", "exit_code", "error"),
    [
        (["/no/such/program"], 127, "SANDBOX_PROGRAM_NOT_FOUND"),
        (["/workspace"], 126, "SANDBOX_PROGRAM_NOT_EXECUTABLE"),
        (["\ud7ff🦀"], 127, "SANDBOX_PROGRAM_NOT_FOUND"),
    ],
)
def test_programs_that_cannot_run_are_records(box: Box, argv: list[str], exit_code: int, error: str) -> None:
    record = box.run(*argv)
    assert (record["status"], record["exit_code"], record["error"]) == ("FAILED", exit_code, error)


def test_an_unusable_cwd_is_a_record(box: Box) -> None:
    body = {"exec_id": "run-cwd", "generation": box.generation, "argv": ["true"], "cwd": "/workspace/none"}
    record = box.http.post(f"/api/v1/sandboxes/{box.name}/exec", json=body).json()
    assert (record["status"], record["error"]) == ("FAILED", "SANDBOX_CWD_UNAVAILABLE")
