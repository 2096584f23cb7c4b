"""The tools that a model is given, for frameworks that make them from functions: names, texts and answers are one."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from sandloom.adapters.machine import Machine, absolute, in_thread
from sandloom.errors import BodyTooLarge, DiskFull, ValidationFailed
from sandloom.sdk import Sandbox

#: What a model is shown of an answer; the middle of a longer one is left out.
MAX_ANSWER_CHARS = 30_000

P = ParamSpec("P")
Tool = Callable[..., Awaitable[str]]


def tools(box: Sandbox, *, timeout_seconds: int = 300) -> list[Tool]:
    """Functions over one sandbox. A mistake of the model is an answer that it can read; a sandbox or
    service that is gone raises SandloomError. ``timeout_seconds`` bounds every command."""
    machine = Machine(box)

    @_answers
    async def run_command(command: str, timeout: int = 60) -> str:
        """Run a shell command in the sandbox and get its output and exit code.

        It starts in /workspace. Files stay, also in /tmp; processes in the background end with the command.

        Args:
            command: What sh runs.
            timeout: Seconds after which the command is ended.
        """
        seconds = max(1, min(timeout, timeout_seconds))
        done = await machine.arun(["sh", "-c", 'exec sh -c "$1" 2>&1', "sh", command], timeout=seconds)
        ended = f"[ended after {seconds} seconds]" if done.timed_out else f"[exit code {done.exit_code}]"
        return f"{_short(done.text)}\n{ended}"

    @_answers
    async def read_file(path: str) -> str:
        """Read a text file of the sandbox.

        Args:
            path: Absolute, or relative to /workspace.
        """
        content = await in_thread(lambda: machine.read(path, max_bytes=8 << 20))
        return _short(content.decode("utf-8", "replace"))

    @_answers
    async def write_file(path: str, content: str) -> str:
        """Write a text file of the sandbox; directories above it are made.

        Args:
            path: Absolute, or relative to /workspace.
            content: All that the file holds afterwards.
        """
        data = content.encode("utf-8", "replace")
        await in_thread(lambda: machine.write(path, data))
        return f"wrote {len(data)} bytes to {absolute(path)}"

    @_answers
    async def edit_file(path: str, old: str, new: str) -> str:
        """Replace a text that occurs once in a file of the sandbox.

        Args:
            path: Absolute, or relative to /workspace.
            old: The text as it stands in the file, with enough around it to occur once.
            new: What stands there afterwards.
        """
        content = (await in_thread(lambda: machine.read(path, max_bytes=8 << 20))).decode()
        if (found := content.count(old) if old else 0) != 1:
            raise ValueError(f"old occurs {found} times in {absolute(path)}, and has to occur once")
        await in_thread(lambda: machine.write(path, content.replace(old, new).encode("utf-8", "replace")))
        return f"edited {absolute(path)}"

    @_answers
    async def list_files(path: str = "/workspace") -> str:
        """List a directory of the sandbox.

        Args:
            path: Absolute, or relative to /workspace.
        """
        done = await machine.arun(["ls", "-lA", "--", f"{absolute(path)}/"], timeout=timeout_seconds)
        return _short(done.text)

    return [run_command, read_file, write_file, edit_file, list_files]


def _answers(tool: Callable[P, Awaitable[str]]) -> Callable[P, Awaitable[str]]:
    """What the model can change becomes an answer."""

    @functools.wraps(tool)
    async def call(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return await tool(*args, **kwargs)
        except (OSError, ValueError, BodyTooLarge, DiskFull, ValidationFailed) as error:
            return f"Error: {error}"

    return call


def _short(text: str) -> str:
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    half = MAX_ANSWER_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
