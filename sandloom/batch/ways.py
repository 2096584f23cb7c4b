"""How a batch reaches sandboxes: what both ways, REST and Celery, do alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sandloom.contracts.rest import RouteAnswer
from sandloom.sdk.results import Result


class Names(NamedTuple):
    """Of an attempt: the same in every run of the batch, so that an exec is found again and never run twice."""

    sandbox_id: str
    exec_id: str


class Box(Protocol):
    """A sandbox that is ready."""

    @property
    def route(self) -> RouteAnswer: ...

    def attach(self, templates: Sequence[str]) -> None: ...

    def put(self, path: str, content: bytes, mode: int) -> None:
        """Makes the directories above it, too."""

    def fetch(self, path: str, local: Path) -> None:
        """Raises FileMissing, FileKindUnsupported, FileTooLarge. ``local`` appears when all of it has arrived."""

    def run(self, command: Mapping[str, Any]) -> Result:
        """Start it, or find what the same call started before; the record, finished or, after a while, not yet."""


class Way(Protocol):
    """Thread-safe. Every method raises SandloomError. ``scope``: the workspace_scope_id of its sandboxes."""

    @property
    def scope(self) -> str: ...

    def open(self, sandbox_id: str) -> Box:
        """Find or make it, and have its workspace made ready."""

    def find(self, names: Names) -> Result | None:
        """The record of an exec; None when it was never admitted. Raises Unavailable when nobody can say."""

    def wait(self, names: Names) -> Result:
        """The record when it has ended, or, after a while, as it is."""

    def release(self, sandbox_id: str) -> None:
        """Also when it is gone already."""

    def close(self) -> None: ...
