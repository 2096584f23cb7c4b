"""A backend for LangChain's deepagents: ``create_deep_agent(model, backend=SandloomBackend(box))``."""

from __future__ import annotations

import errno

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from sandloom.adapters.machine import MAX_TIMEOUT_SECONDS, Done, Machine
from sandloom.sdk import Sandbox

_ERRORS: dict[int, str] = {
    errno.ENOENT: FILE_NOT_FOUND,
    errno.EISDIR: IS_DIRECTORY,
    errno.ENOTDIR: INVALID_PATH,
    errno.EINVAL: INVALID_PATH,
    errno.EACCES: PERMISSION_DENIED,
}


class SandloomBackend(BaseSandbox):
    """The commands and files of one sandbox, which needs ``python3``, as every BaseSandbox does.

    Only /workspace, /home and /tmp can be written. What deepagents keeps of its own has to go there:
    ``CompositeBackend(default=backend, routes={}, artifacts_root="/workspace/.agent")``.
    """

    def __init__(self, box: Sandbox) -> None:
        self.machine = Machine(box)

    @property
    def id(self) -> str:
        return self.machine.box.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a text by ``sh``. ``timeout`` in seconds: the deployment's default unless given, 0 for the longest."""
        return _response(self.machine.run(_argv(command), timeout=_seconds(timeout)), timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The same; a command whose call is cancelled is ended."""
        return _response(await self.machine.arun(_argv(command), timeout=_seconds(timeout)), timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return str(INVALID_PATH)
        try:
            self.machine.write(path, content)
        except OSError as error:
            return _ERRORS.get(error.errno or 0, str(error))
        return None

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error=INVALID_PATH)
        try:
            return FileDownloadResponse(path=path, content=self.machine.read(path))
        except OSError as error:
            return FileDownloadResponse(path=path, error=_ERRORS.get(error.errno or 0, str(error)))


def _argv(command: str) -> list[str]:
    """Both streams are one, in the order in which the command wrote them."""
    return ["sh", "-c", 'exec sh -c "$1" 2>&1', "sh", command]


def _seconds(timeout: int | None) -> int | None:
    return MAX_TIMEOUT_SECONDS if timeout == 0 else timeout


def _response(done: Done, timeout: int | None) -> ExecuteResponse:
    output = done.text
    if done.timed_out:
        limit = f"{timeout} seconds" if timeout else "the deployment allows"
        output += f"\nThe command was ended: it took longer than {limit}."
    return ExecuteResponse(output=output, exit_code=done.exit_code, truncated=done.truncated)
