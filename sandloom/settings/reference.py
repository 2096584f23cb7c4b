"""The reference table of all settings, as Markdown. ``python -m sandloom.settings.reference`` prints it."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from sandloom.settings.fields import GIB, MIB
from sandloom.settings.model import GROUPS

TITLES = {
    "General": "General",
    "Api": "API",
    "Isolation": "Isolation",
    "Limits": "Limits of a command",
    "Worker": "Worker",
    "Lease": "Leases and maintenance",
    "Retention": "Keeping and releasing",
    "Backends": "Database, broker and bus",
    "Objects": "Object store",
    "Templates": "Templates",
    "Toolchains": "Toolchains",
    "Egress": "Network",
}


def markdown() -> str:
    """One table per group."""
    parts = []
    for group in GROUPS:
        rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
        for name in group.__annotations__:
            field = group.model_fields[name]
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            default = extra.get("shown", default_text(field.default))
            rows.append(f"| `SANDBOX_{name.upper()}` | {default} | {field.description} |")
        parts.append(f"## {TITLES[group.__name__]}\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def default_text(value: Any) -> str:
    """A default as people read it: sizes in binary units, lists with commas."""
    if value is None or value == () or (isinstance(value, SecretStr) and not value.get_secret_value()):
        return "unset" if value is None else "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        for unit, size in (("GiB", GIB), ("MiB", MIB)):
            if value >= size and value % size == 0:
                return f"`{value}` ({value // size} {unit})"
        return f"`{value}`"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    return f"`{value}`"


if __name__ == "__main__":
    print(markdown(), end="")
