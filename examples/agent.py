"""An agent of Pydantic AI that works in a sandbox.

    SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/agent.py

Needs the extra ``sandloom[pydantic-ai]``: ``.venv/bin/pip install -e '.[pydantic-ai]'`` in a checkout.
MODEL names a model, as in ``openai:gpt-5``; without it a script stands in for one, so that no key is needed.
"""

from __future__ import annotations

import os
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sandloom import Client
from sandloom.adapters.pydantic_ai import sandbox_toolset

TASK = "Write a program that counts the primes below 1000, run it, and tell the number."
PROGRAM = "print(sum(all(n % d for d in range(2, n)) for n in range(2, 1000)))\n"
SCRIPT = [
    ToolCallPart("write_file", {"path": "primes.py", "content": PROGRAM}),
    ToolCallPart("run_command", {"command": "python3 primes.py"}),
]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Makes the calls of SCRIPT one by one, then says what the last one answered."""
    answers = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if len(answers) < len(SCRIPT):
        return ModelResponse(parts=[SCRIPT[len(answers)]])
    return ModelResponse(parts=[TextPart(f"There are {str(answers[-1].content).split()[0]} primes below 1000.")])


def main() -> None:
    task = " ".join(sys.argv[1:]) or TASK
    with Client.from_env() as client, client.sandbox(scope="examples") as box:
        agent = Agent(
            os.environ.get("MODEL") or FunctionModel(scripted),
            instructions="You work in a sandbox. Check what you say by running it.",
            toolsets=[sandbox_toolset(box)],
        )
        result = agent.run_sync(task)
        for message in result.all_messages():
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    print(f"called: {part.tool_name}")
                elif isinstance(part, ToolReturnPart):
                    print(f"answered: {str(part.content)!r}")
        print(result.output)


if __name__ == "__main__":
    main()
