"""Identifiers: their syntax, and new ones."""

from __future__ import annotations

import re
import secrets
import time
from typing import NamedTuple

DEFAULT_TENANT = "default"

#: ``sandbox_id``, ``exec_id`` and ``exec_scope``: 3 to 128 of these characters.
NAME_PATTERN = r"^[A-Za-z0-9_.:-]{3,128}$"
RESERVED_NAMES = frozenset({"resolve", "mcp", "diagnostics"})
_NAME = re.compile(NAME_PATTERN.replace("$", r"\Z"))
#: Names of templates, which become names of directories.
TEMPLATE_NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,63}"
_TEMPLATE = re.compile(rf"{TEMPLATE_NAME_PATTERN}\Z")
WORKER_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
_WORKER = re.compile(WORKER_ID_PATTERN.replace("$", r"\Z"))
#: The same in words, for those whose name was refused.
NAME_RULE = "must be 3 to 128 of A-Z a-z 0-9 _ . : -"
TEMPLATE_NAME_RULE = "must be 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"
WORKER_ID_RULE = "must be 1 to 128 of A-Z a-z 0-9 _ . -, beginning with a letter or digit"
TENANT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_TENANT = re.compile(TENANT_PATTERN.replace("$", r"\Z"))


class SandboxKey(NamedTuple):
    """Names a sandbox everywhere: rows, directories, messages, locks, streams."""

    tenant_id: str
    sandbox_id: str


class ExecKey(NamedTuple):
    """Names an exec everywhere."""

    tenant_id: str
    sandbox_id: str
    exec_id: str

    @property
    def sandbox(self) -> SandboxKey:
        return SandboxKey(self.tenant_id, self.sandbox_id)


def is_name(value: str) -> bool:
    """Whether ``value`` may be a sandbox, exec or scope id."""
    return bool(_NAME.match(value)) and value not in RESERVED_NAMES


def is_template_name(value: str) -> bool:
    return bool(_TEMPLATE.match(value))


def is_tenant_id(value: str) -> bool:
    return bool(_TENANT.match(value))


def is_worker_id(value: str) -> bool:
    """Whether ``value`` may be a worker id (it becomes part of queue names and paths)."""
    return bool(_WORKER.match(value))


def new_id() -> str:
    """A new id of 32 hexadecimal digits that sorts by time of creation (48 bits of milliseconds, 80 random bits)."""
    return f"{int(time.time() * 1000):012x}{secrets.token_hex(10)}"
