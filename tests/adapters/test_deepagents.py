"""deepagents' own tests of a sandbox, all of them, and an agent that works in one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests

from sandloom.adapters.deepagents import SandloomBackend
from sandloom.sdk import Client, Sandbox

#: langchain-tests 1.1.9 still asks for what deepagents 0.7 changed: paths of glob are absolute, so that rules for paths
#: see them, and write replaces a file. The two tests below ask for that.
OLDER_THAN_THE_PACKAGE = {
    "test_glob", "test_glob_basic_pattern", "test_glob_with_directories", "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class", "test_glob_with_question_mark", "test_write_existing_file_fails",
}  # fmt: skip


class TestStandard(SandboxIntegrationTests):
    @pytest.fixture(autouse=True)
    def _older(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in OLDER_THAN_THE_PACKAGE:
            reason = "the test is older than the package"
            request.applymarker(pytest.mark.xfail(raises=AssertionError, strict=True, reason=reason))

    @pytest.fixture(scope="class")
    def sandbox(self, client: Client) -> Iterator[SandloomBackend]:
        with client.sandbox(scope="adapters") as box:
            # The tests call `python`, as it is in images of containers.
            box.run("mkdir -p ~/.local/bin && ln -s $(command -v python3) ~/.local/bin/python").check()
            yield SandloomBackend(box)


def test_a_command_that_takes_too_long_is_ended_and_says_so(box: Sandbox) -> None:
    # A longer limit where it had not even begun.
    for seconds in (1, 8, 64):
        response = SandloomBackend(box).execute("echo begun; sleep 600", timeout=seconds)
        assert response.exit_code != 0
        assert response.output.endswith(f"The command was ended: it took longer than {seconds} seconds.")
        if response.output.startswith("begun\n"):
            break
    assert response.output.startswith("begun\n")


def test_glob_finds_absolute_paths(box: Sandbox) -> None:
    backend = SandloomBackend(box)
    backend.upload_files([(f"/tmp/found/{name}", b"") for name in ("a.py", "in/b.py", ".c.py", "d.txt")])
    result = backend.glob("*.py", path="/tmp/found")
    assert [found["path"] for found in result.matches or []] == ["/tmp/found/a.py", "/tmp/found/in/b.py"]


def test_write_replaces_a_file(box: Sandbox) -> None:
    backend = SandloomBackend(box)
    assert [backend.write("/workspace/a", text).error for text in ("one", "two")] == [None, None]
    assert box.files.read_text("/workspace/a") == "two"


def test_both_streams_are_in_order(box: Sandbox) -> None:
    assert SandloomBackend(box).execute("echo a; echo b >&2; echo c; exit 3").output == "a\nb\nc\n"


class Scripted(GenericFakeChatModel):
    """Says what it was given, whatever tools there are."""

    def bind_tools(self, tools, **more):
        return self


def test_an_agent_works_in_the_sandbox(box: Sandbox) -> None:
    calls = [
        {"name": "write_file", "args": {"file_path": "/workspace/a.py", "content": "print(6 * 7)"}, "id": "1"},
        {"name": "execute", "args": {"command": "python3 a.py | tee /tmp/out"}, "id": "2"},
        {"name": "read_file", "args": {"file_path": "/tmp/out"}, "id": "3"},
    ]
    messages = [*(AIMessage(content="", tool_calls=[call]) for call in calls), AIMessage(content="done")]
    backend = CompositeBackend(default=SandloomBackend(box), routes={}, artifacts_root="/workspace/.agent")
    agent = create_deep_agent(model=Scripted(messages=iter(messages)), backend=backend)
    state = agent.invoke({"messages": [{"role": "user", "content": "compute"}]})
    said = {message.tool_call_id: message.text for message in state["messages"] if isinstance(message, ToolMessage)}
    assert "42" in said["2"]
    assert "42" in said["3"]
    assert box.files.read_text("/workspace/a.py") == "print(6 * 7)"
