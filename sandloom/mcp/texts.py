"""Results and errors as the texts that a model reads."""

from __future__ import annotations

from pydantic import BaseModel

from sandloom.errors import Category, SandloomError
from sandloom.mcp.results import ExecResult, Output, ReadResult

_ADVICE = {
    Category.CHANGE: "Change the call before sending it again.",
    Category.WAIT: "The same call may succeed later.",
    Category.STOP: "Neither waiting nor changing the call helps.",
}


def as_json(result: BaseModel) -> str:
    return result.model_dump_json()


def exec_text(result: ExecResult) -> str:
    """A line about the command, then its streams."""
    facts = [f"{result.status}: exec_id {result.exec_id}"]
    facts += [f"exit code {result.exit_code}"] if result.exit_code is not None else []
    facts += [f"signal {result.signal}"] if result.signal is not None else []
    facts += [result.reason] if result.reason not in (None, "exit", "signal") else []
    facts += [result.error] if result.error is not None else []
    facts += [f"{result.duration_ms} ms"] if result.duration_ms is not None else []
    lines = [", ".join(facts)]
    lines += [result.detail] if result.detail else []
    if not result.finished:
        lines.append("It goes on; sandbox_exec_status with this exec_id and wait_seconds waits for its end.")
    if result.truncated:
        lines.append("It wrote more than the service keeps; the rest is lost.")
    lines += [*_stream("stdout", result.stdout), *_stream("stderr", result.stderr)]
    return "\n".join(lines)


def _stream(name: str, output: Output) -> list[str]:
    if not output.total_chars:
        return []
    lines = [f"{name}:", output.text.removesuffix("\n")]
    if output.offset or output.next_offset is not None:
        end = output.offset + len(output.text)
        note = f"[characters {output.offset} to {end} of {output.total_chars}"
        more = f"; sandbox_exec_status with this exec_id and {name}_offset={output.next_offset} returns what follows"
        lines.append(note + (more if output.next_offset is not None else "") + "]")
    return lines


def read_text(result: ReadResult) -> str:
    """The content and nothing else, unless there is more of it."""
    text = result.content if result.content is not None else f"base64: {result.content_base64}"
    if result.next_offset is None:
        return text
    note = f"bytes {result.offset} to {result.next_offset} of {result.size_bytes}"
    return f"{text}\n[{note}; sandbox_read_file with offset={result.next_offset} returns what follows]"


def error_text(error: SandloomError) -> str:
    """The code first, then what is wrong and what to do."""
    lines = [f"{error.code}: {error.detail}"]
    errors = error.extra.get("errors")
    for entry in errors if isinstance(errors, list) else []:
        if isinstance(entry, dict):
            lines.append(f"- {entry.get('field') or 'the call'}: {entry.get('message')}")
    if "exec_id" in error.extra:
        lines.append(f"The command has exec_id {error.extra['exec_id']}; sandbox_exec_status shows whether it ran.")
    lines.append(_ADVICE[error.category])
    # A message may repeat a name that cannot be written in UTF-8.
    return "\n".join(lines).encode("utf-8", "replace").decode()
