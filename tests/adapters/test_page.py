"""The examples of docs/adapters.md as they stand, and examples/agent.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from pydantic_ai.models.test import TestModel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adapters.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMAND = "echo 168"


class Chat(GenericFakeChatModel):
    def bind_tools(self, tools, **more):
        return self


def deepagents() -> Any:
    call = {"name": "execute", "args": {"command": COMMAND}, "id": "1"}
    return Chat(messages=iter([AIMessage(content="", tool_calls=[call]), AIMessage(content="168")]))


def inspect_ai() -> Any:
    call = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat secret.txt"})
    outputs = [call, ModelOutput.from_content("mockllm/model", "xyzzy")]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model("mockllm/model", custom_outputs=outputs)


def openai_agents() -> Any:
    set_tracing_disabled(True)
    call = function_call("run_command", {"command": COMMAND}, call_id="1")
    return ScriptedModel([[call], [assistant_message("168")]])


CASES = {
    "from deepagents": (deepagents, "168\n"),
    "from inspect_ai": (inspect_ai, "success\n"),
    "from agents": (openai_agents, "168\n"),
    "from pydantic_ai": (lambda: TestModel(custom_output_text="168"), "168\n"),
    "import fsspec": (lambda: None, "a,b\n1,2\n\n['reports/workspace/out/data.csv']\n"),
}


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.split("\n")[0])
def test_an_example_of_the_page_works(
    code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    ((model, said),) = [case for first, case in CASES.items() if code.startswith(first)]
    exec(compile(code, "docs/adapters.md", "exec"), {"model": model()})  # noqa: S102
    assert capsys.readouterr().out == said


def test_every_example_has_a_case() -> None:
    assert len(BLOCKS) == len(CASES)


def test_the_example_of_an_agent_works() -> None:
    command = [sys.executable, str(ROOT / "examples" / "agent.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "called: write_file",
        "answered: 'wrote 68 bytes to /workspace/primes.py'",
        "called: run_command",
        "answered: '168\\n\\n[exit code 0]'",
        "There are 168 primes below 1000.",
    ]
