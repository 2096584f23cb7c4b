"""The examples and the README's commands, run as they stand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.need import missing
from tests.services.process import ROOT

pytestmark = pytest.mark.bwrap


def test_the_example_needs_the_standard_library_only(environment: dict[str, str], tmp_path: Path) -> None:
    # Isolated and without site: neither this project nor an installed package can be imported.
    command = [sys.executable, "-I", "-S", str(ROOT / "examples" / "quickstart.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [
        r"quickstart-\w+ is READY on \S+, generation 1",
        r"ran: FAILED, exit code 3, stdout 'hello\\n42\\n'",
        r"polled: SUCCEEDED, stdout 'slept\\n'",
        r"event: status 'QUEUED'",
        r"event: status 'RUNNING'",
        r"event: stdout 'line 1\\n'",
        r"event: status 'SUCCEEDED'",
        r"read back: 'grüße\\n'",
        r"listed: \['moved.txt'\]",
        r"after deleting: \[\]",
        r"released: RELEASED",
    ]
    rest = done.stdout
    for pattern in expected:
        match = re.search(f"^{pattern}$", rest, re.MULTILINE)
        assert match, f"{pattern} is not in the rest of the output:\n{rest}"
        rest = rest[match.end() :]


def test_the_example_of_templates_builds_attaches_and_cannot_change_what_it_attached(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-I", "-S", str(ROOT / "examples" / "templates.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "built: SUCCEEDED"
    assert re.fullmatch(r"published: tools@sha256:\w{11}… of \d+ bytes", lines[1])
    assert lines[2:] == [
        "attached: ['/envs/tools']",
        "used: '42 /envs/tools\\n'",
        "after trying to change it: '42 /envs/tools\\n'",
        "listed: ['tools']",
        "unpublished and released",
    ]


def test_the_example_reports_a_wrong_token_by_its_code(environment: dict[str, str]) -> None:
    command = [sys.executable, str(ROOT / "examples" / "quickstart.py")]
    env = environment | {"SANDBOX_INTERNAL_TOKEN": "wrong"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UNAUTHORIZED" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_curl_commands_of_the_readme_work(environment: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl")
    blocks = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (script,) = [block for block in blocks if "api()" in block]
    for generation in (1, 2):
        _check_readme(script, generation, environment, tmp_path)


def _check_readme(script: str, generation: int, environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-e", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    route, ready, hello, count, counted, written, listing, released, afterwards = answers
    assert (route["generation"], ready["status"]) == (generation, "READY")
    assert (hello["exit_code"], hello["stdout"], count["finished_at"]) == (3, "hello\n", None)
    assert counted["stdout"] == "line 1\nline 2\nline 3\n"
    assert written["path"] == "/workspace/notes.txt"
    assert [entry["name"] for entry in listing["entries"]] == ["notes.txt"]
    assert "\nremember me\n" in done.stdout
    assert "event: end" in done.stdout
    assert released == {"sandbox_id": "readme", "status": "RELEASED"}
    assert afterwards == hello


def test_the_python_of_the_readme_works(environment: dict[str, str], tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 42\n\n"), done.stderr
