"""inspect_ai's own checks of a sandbox, all of them, and an evaluation that uses one."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from sandloom.adapters.inspect_ai import SandloomConfig
from sandloom.sdk import Client

#: A check that asks for what no sandbox has, as inspect_ai's own local provider does not pass it either.
NEEDS_ROOT = "test_exec_as_user"


@pytest.fixture(scope="module")
def environment() -> Iterator[SandboxEnvironment]:
    kind = registry_find_sandboxenv("sandloom")
    made = asyncio.run(kind.sample_init("checks", None, {}))
    yield made["default"]
    asyncio.run(kind.sample_cleanup("checks", None, made, False))


@pytest.fixture
def sandbox_env(request: pytest.FixtureRequest, environment: SandboxEnvironment) -> SandboxEnvironment:
    if request.node.originalname == NEEDS_ROOT:
        reason = "a sandbox has one user, and no root"
        request.applymarker(pytest.mark.xfail(raises=SandboxUserUnsupportedError, strict=True, reason=reason))
    return environment


def test_every_check_of_the_package_is_collected() -> None:
    assert set(self_check.__all__) <= set(globals())
    assert len(self_check.__all__) > 40


async def test_output_beyond_the_limit_is_an_error_with_its_beginning(sandbox_env: SandboxEnvironment) -> None:
    with override_max_exec_output_size(1024), pytest.raises(OutputLimitExceededError) as caught:
        await sandbox_env.exec(["sh", "-c", "yes | head -c 4096"])
    assert caught.value.truncated_output == "y\n" * 512


async def test_text_that_is_not_utf8_is_an_error(sandbox_env: SandboxEnvironment) -> None:
    await sandbox_env.write_file("latin", b"caf\xe9")
    with pytest.raises(UnicodeDecodeError):
        await sandbox_env.read_file("latin")


async def test_a_cancelled_command_is_ended(sandbox_env: SandboxEnvironment) -> None:
    running = asyncio.create_task(sandbox_env.exec(["sh", "-c", "touch begun; sleep 600"]))
    while not (await sandbox_env.exec(["test", "-e", "begun"])).success:
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    box = sandbox_env.machine.box
    (record,) = [found for found in box.processes() if "sleep 600" in " ".join(found.argv)]
    assert box.process(record.exec_id).wait().status == "CANCELLED"


async def test_a_connection_is_a_command_that_runs_lines(sandbox_env: SandboxEnvironment, tmp_path: Path) -> None:
    connection = await sandbox_env.connection()
    done = subprocess.run(
        ["sh", "-c", connection.command], input="echo $((6 * 7))\nwhoami\n", capture_output=True, text=True, check=False
    )
    assert done.stdout.replace("$ ", "").split() == ["42", "sandbox"], done.stderr
    with pytest.raises(ConnectionError):
        await sandbox_env.connection(user="root")


def test_an_evaluation_runs_its_tools_in_a_sandbox_that_is_gone_afterwards(client: Client, tmp_path: Path) -> None:
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat question.txt > /tmp/kept"}),
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "tr a-z A-Z < /tmp/kept"}),
        ModelOutput.from_content("mockllm/model", "done"),
    ]
    task = Task(
        dataset=[Sample(input="shout", target="done", files={"question.txt": "answer"})],
        solver=[use_tools(bash(timeout=60)), generate()],
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("sandloom", SandloomConfig(scope="evaluation")),
    )
    for output in outputs:
        # Otherwise they are counted, with a table that is fetched.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    assert log.samples is not None
    said = [message.text for message in log.samples[0].messages if message.role == "tool"]
    assert said[1].strip() == "ANSWER"
    assert [route.status for route in client.sandboxes(scope="evaluation")] == ["RELEASED"]
