"""Tools of agents: called by the frameworks' own runs, with models that say what they were told to."""

from __future__ import annotations

import json

import pytest
from agents import Agent as OpenAIAgent
from agents import Runner, UserError, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from sandloom.adapters.openai_agents import sandbox_tools
from sandloom.adapters.pydantic_ai import sandbox_toolset
from sandloom.adapters.tools import MAX_ANSWER_CHARS
from sandloom.errors import SandloomError
from sandloom.sdk import Client, Sandbox

Call = tuple[str, dict[str, object]]

#: Seconds for a command that is ended by its limit; a longer one where it had not even begun.
LIMITS = (1, 8, 64)
STEPS: list[Call] = [
    ("write_file", {"path": "src/a.py", "content": "print(6 * 6)"}),
    ("edit_file", {"path": "src/a.py", "old": "6 * 6", "new": "6 * 7"}),
    ("run_command", {"command": "python3 src/a.py | tee /tmp/out; exit 3"}),
    ("read_file", {"path": "/tmp/out"}),
    ("list_files", {"path": "src"}),
    ("read_file", {"path": "nothing"}),
    ("edit_file", {"path": "src/a.py", "old": "7 * 7", "new": ""}),
    ("run_command", {"command": "echo begun; sleep 600", "timeout": LIMITS[0]}),
    ("run_command", {"command": "yes | head -c 100000"}),
]
LATE = 7


def steps(limit_seconds: int) -> list[Call]:
    name, given = STEPS[LATE]
    return [*STEPS[:LATE], (name, {**given, "timeout": limit_seconds}), *STEPS[LATE + 1 :]]


def had_begun(answers: list[str]) -> bool:
    return answers[LATE].startswith("begun\n")


def check(answers: list[str], limit_seconds: int) -> None:
    wrote, edited, ran, read, listed, missing, absent, late, long = answers
    assert wrote == "wrote 12 bytes to /workspace/src/a.py"
    assert edited == "edited /workspace/src/a.py"
    assert ran == "42\n\n[exit code 3]"
    assert read == "42\n"
    assert listed.splitlines()[1].endswith(" a.py")
    assert missing.startswith("Error: ")
    assert "nothing" in missing
    assert absent == "Error: old occurs 0 times in /workspace/src/a.py, and has to occur once"
    assert late.startswith("begun\n")
    assert late.endswith(f"[ended after {limit_seconds} seconds]")
    assert len(long) < MAX_ANSWER_CHARS + 100
    assert f"{100_000 - MAX_ANSWER_CHARS} characters left out" in long


def test_pydantic_ai_calls_them(box: Sandbox) -> None:
    def answered(calls: list[Call]) -> list[str]:
        answers: list[str] = []

        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            answers.extend(str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart))
            if len(answers) == len(calls):
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart(*calls[len(answers)])])

        agent = Agent(FunctionModel(model), toolsets=[sandbox_toolset(box)])
        assert agent.run_sync("work").output == "done"
        return answers

    for limit_seconds in LIMITS:
        answers = answered(steps(limit_seconds))
        if had_begun(answers):
            break
    check(answers, limit_seconds)


def test_pydantic_ai_s_own_test_model_can_call_each(box: Sandbox) -> None:
    answers = json.loads(Agent(TestModel(), toolsets=[sandbox_toolset(box)]).run_sync("work").output)
    assert set(answers) == {name for name, _ in STEPS}


async def test_the_openai_agents_sdk_calls_them(box: Sandbox) -> None:
    set_tracing_disabled(True)
    for limit_seconds in LIMITS:
        calls = [[function_call(name, given, call_id=str(n))] for n, (name, given) in enumerate(steps(limit_seconds))]
        model = ScriptedModel([*calls, [assistant_message("done")]])
        agent = OpenAIAgent(name="worker", model=model, tools=sandbox_tools(box))
        result = await Runner.run(agent, "work", max_turns=len(STEPS) + 1)
        assert result.final_output == "done"
        answers = [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]
        if had_begun(answers):
            break
    check(answers, limit_seconds)


async def test_a_sandbox_that_is_gone_ends_the_run(client: Client) -> None:
    set_tracing_disabled(True)
    with client.sandbox(scope="adapters") as gone:
        tools = sandbox_tools(gone)
    model = ScriptedModel([[function_call("run_command", {"command": "true"}, call_id="1")]])
    with pytest.raises(UserError) as caught:
        await Runner.run(OpenAIAgent(name="worker", model=model, tools=tools), "work")
    assert isinstance(caught.value.__cause__, SandloomError)
