"""``sandbox="sandloom"`` in inspect_ai: each sample gets a sandbox of its own, released when the sample is over.

The service is the one that SANDBOX_BASE_URL and SANDBOX_API_KEY or SANDBOX_INTERNAL_TOKEN name.
"""

from __future__ import annotations

import errno
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from sandloom.adapters.machine import MAX_TIMEOUT_SECONDS, WORKSPACE, Done, Machine, in_thread
from sandloom.errors import SandboxNotFound
from sandloom.ids import new_id
from sandloom.sdk import Client

PREFIX = "inspect-"
USER = "sandbox"


class SandloomConfig(BaseModel):
    """``SandboxEnvironmentSpec("sandloom", SandloomConfig(…))``: how the sandbox of each sample is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scope: str = "inspect"
    profile: str = "coding-default"
    templates: tuple[str, ...] = ()


@sandboxenv(name="sandloom")
class SandloomSandboxEnvironment(SandboxEnvironment):
    """Commands run as the sandbox's only user, ``sandbox``; a relative path is below /workspace."""

    def __init__(self, client: Client, machine: Machine) -> None:
        super().__init__()
        self._client = client
        self.machine = machine

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        chosen = config if isinstance(config, SandloomConfig) else SandloomConfig()
        if config is not None and config is not chosen:
            raise ValueError("a sandloom sandbox takes a SandloomConfig and no file")
        return {"default": await in_thread(lambda: cls._make(chosen, task_name))}

    @classmethod
    def _make(cls, config: SandloomConfig, task_name: str) -> SandloomSandboxEnvironment:
        client = Client.from_env()
        try:
            box = client.sandbox(PREFIX + new_id(), scope=config.scope, profile=config.profile, keep=True)
            if config.templates:
                box.attach_templates(*config.templates)
        except BaseException:
            client.close()
            raise
        return cls(client, Machine(box, labels={"inspect_task": task_name[:256]}))

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            own = environment.as_type(cls)
            await in_thread(own._end)

    def _end(self) -> None:
        try:
            self.machine.box.release()
        finally:
            self._client.close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """``inspect sandbox cleanup sandloom [id]``: what ``--no-sandbox-cleanup`` or a crash left."""
        await in_thread(lambda: _release_left(id))

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SandloomConfig.model_validate(config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """A command that timed out is not run again: half of its work may have been done."""
        if user not in (None, USER, str(self.machine.box.route.sandbox_uid)):
            raise SandboxUserUnsupportedError(f"A sandbox has one user, {USER!r}, and cannot run commands as {user!r}.")
        stdin = input.encode() if isinstance(input, str) else input or b""
        seconds = MAX_TIMEOUT_SECONDS if timeout is None else timeout
        done = await self.machine.arun(cmd, cwd=cwd or WORKSPACE, env=env, stdin=stdin, timeout=seconds)
        if done.timed_out:
            raise TimeoutError(f"The command did not end within {seconds} seconds.")
        _check_output(done)
        stdout, stderr = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        if done.exit_code == 126 and "permission denied" in stderr.lower():
            raise PermissionError(errno.EACCES, stderr.strip(), cmd[0])
        return ExecResult(done.exit_code == 0, done.exit_code, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        await in_thread(lambda: self.machine.write(file, content))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit, shown = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
        try:
            content = await in_thread(lambda: self.machine.read(file, max_bytes=limit))
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise OutputLimitExceededError(shown, None) from error
            raise
        return content.decode() if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A loop that runs each line as a command of the sandbox; there is no terminal."""
        box = self.machine.box
        try:
            status = (await in_thread(lambda: self._client.attach(box.id))).route.status
        except SandboxNotFound:
            status = "RELEASED"
        if user not in (None, USER) or status in ("RELEASING", "RELEASED"):
            raise ConnectionError(f"{box.id} is {status} and has one user, {USER!r}")
        each = f'sandloom exec {box.id} -- sh -c "$line" </dev/null'
        command = f"while printf '$ ' && IFS= read -r line; do {each}; done"
        return SandboxConnection(type="sandloom", command=command, container=box.id)


def _check_output(done: Done) -> None:
    limit, shown = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
    if done.truncated or max(len(done.stdout), len(done.stderr)) > limit:
        longest = max(done.stdout, done.stderr, key=len)[:limit]
        raise OutputLimitExceededError(shown, longest.decode("utf-8", "replace"))


def _release_left(sandbox_id: str | None) -> None:
    with Client.from_env() as client:
        if sandbox_id is not None:
            client.attach(sandbox_id).release()
            return
        while found := [
            route.sandbox_id
            for status in ("ASSIGNED", "READY", "RUNNING", "SUSPENDED")
            for route in client.sandboxes(status=status, search=PREFIX)
            if route.sandbox_id.startswith(PREFIX)
        ]:
            for name in found:
                client.attach(name).release()
