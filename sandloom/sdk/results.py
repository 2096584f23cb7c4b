"""What a command left behind."""

from __future__ import annotations

import base64

from pydantic import field_validator

from sandloom.contracts.rest import ExecAnswer

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED", "WORKER_LOST"})


class Result(ExecAnswer):
    """The record of a command, finished or not."""

    stdout: str = ""
    stderr: str = ""

    @field_validator("stdout", "stderr", mode="before")
    @classmethod
    def _absent_is_empty(cls, value: str | None) -> str:
        return "" if value is None else value

    @property
    def finished(self) -> bool:
        return self.status in TERMINAL

    @property
    def ok(self) -> bool:
        """Whether the command ran to its end with exit code 0."""
        return self.status == "SUCCEEDED"

    @property
    def stdout_bytes(self) -> bytes:
        return self._bytes(self.stdout)

    @property
    def stderr_bytes(self) -> bytes:
        return self._bytes(self.stderr)

    def check(self) -> Result:
        """Itself when ``ok``; otherwise raises CommandFailed."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    def _bytes(self, text: str) -> bytes:
        return base64.b64decode(text) if self.encoding == "base64" else text.encode()


class CommandFailed(Exception):
    """A command did not end with exit code 0; ``result`` is its record."""

    def __init__(self, result: Result) -> None:
        self.result = result
        what = f"exit code {result.exit_code}" if result.exit_code is not None else result.status
        super().__init__(f"{result.argv[0]}: {what} ({result.reason or result.error or result.status})")
