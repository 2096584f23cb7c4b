"""Bodies and answers of the file routes; the file tasks take the same models as arguments.

A path that is not UTF-8 cannot be written in JSON or a query: it is given as base64 of its bytes, in the field whose
name ends in ``_base64``, instead of as text. Inside the service it is a text in which each odd byte 0xNN is the code
point U+DCNN (``surrogateescape``).
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from sandloom.contracts.rest import Answer, Body, Generation, SandboxPath, Text

MAX_PATTERN_CHARS = 1000
MAX_MATCHES = 1000
MAX_EDIT_CHARS = 65_536
_URL_ALPHABET = str.maketrans("-_", "+/")


def _base64(value: str) -> str:
    try:
        base64.b64decode(value.translate(_URL_ALPHABET).encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError("is not base64") from None
    return value


#: Of a path's bytes; with either alphabet, since ``+`` and ``/`` have meanings of their own in a query.
PathBase64 = Annotated[str, StringConstraints(max_length=8192), AfterValidator(_base64)]


def path_text(path: str | None, path_base64: str | None) -> str:
    """The one of both that is given, as the text that the service uses inside."""
    if path is not None:
        return path
    raw = base64.b64decode((path_base64 or "").translate(_URL_ALPHABET))
    return raw.decode("utf-8", "surrogateescape")


def path_fields(path: str | bytes, name: str = "path") -> dict[str, str]:
    """``{name: text}``, or ``{name_base64: …}`` for a path that is not UTF-8."""
    try:
        if isinstance(path, bytes):
            return {name: path.decode()}
        path.encode()
        return {name: path}
    except UnicodeDecodeError:
        raw = bytes(path)  # type: ignore[arg-type]
    except UnicodeEncodeError:
        try:
            raw = str(path).encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # other lone surrogates stand for nothing: the owner refuses them by their own code
            return {name: str(path)}
    return {f"{name}_base64": base64.b64encode(raw).decode()}


def shown(path: str) -> str:
    """The path for people: odd bytes as U+FFFD."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _one_of(given: str | None, given_base64: str | None, name: str) -> None:
    if (given is None) == (given_base64 is None):
        raise ValueError(f"{name} is needed, or {name}_base64, and not both")


class PlaceBody(Body):
    """One path, as text or as bytes; ``place`` is it as the service uses it inside."""

    path: SandboxPath | None = None
    path_base64: PathBase64 | None = Field(default=None, description="instead of path, for one that is not UTF-8")

    @model_validator(mode="after")
    def _check_place(self) -> PlaceBody:
        _one_of(self.path, self.path_base64, "path")
        return self

    @property
    def place(self) -> str:
        return path_text(self.path, self.path_base64)


class FileBody(PlaceBody):
    generation: Generation


class FileWriteBody(FileBody):
    content_base64: str = Field(repr=False)
    mode: Annotated[int, Field(ge=0, le=0o777)] | None = None


class MkdirBody(FileBody):
    parents: bool = False


class FileDeleteBody(FileBody):
    recursive: bool = False


class MoveBody(Body):
    generation: Generation
    source: SandboxPath | None = None
    source_base64: PathBase64 | None = None
    destination: SandboxPath | None = None
    destination_base64: PathBase64 | None = None
    overwrite: bool = False

    @model_validator(mode="after")
    def _check_places(self) -> MoveBody:
        _one_of(self.source, self.source_base64, "source")
        _one_of(self.destination, self.destination_base64, "destination")
        return self

    @property
    def source_place(self) -> str:
        return path_text(self.source, self.source_base64)

    @property
    def destination_place(self) -> str:
        return path_text(self.destination, self.destination_base64)


Pattern = Annotated[Text, Field(min_length=1, max_length=MAX_PATTERN_CHARS)]


class GrepBody(PlaceBody):
    """``path`` is a file or a directory, /workspace unless given."""

    generation: Generation
    path: SandboxPath | None = "/workspace"
    pattern: Annotated[Pattern, Field(description="in the syntax of RE2, matched line by line")]
    glob: Pattern | None = Field(default=None, description="only files whose path below the directory matches")
    max_matches: Annotated[int, Field(ge=1, le=MAX_MATCHES, strict=True)] = 100

    @model_validator(mode="before")
    @classmethod
    def _bytes_replace_the_default(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("path_base64") is not None:
            return {"path": None, **values}
        return values


class ReplaceBody(FileBody):
    old: Annotated[Text, Field(min_length=1, max_length=MAX_EDIT_CHARS, repr=False)]
    new: Annotated[Text, Field(max_length=MAX_EDIT_CHARS, repr=False)]
    count: Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)] | None = Field(
        default=None, description="at most so many, from the start; all unless given"
    )


class FileContent(Answer):
    path: str
    content_base64: str


class FileEntry(Answer):
    name: str
    path: str
    type: Literal["file", "directory", "symlink", "fifo", "socket", "device", "other"]
    size_bytes: int
    modified_at: str
    mode: str = Field(description="permission bits as four octal digits")
    name_base64: str | None = Field(default=None, description="the exact bytes of a name that is not UTF-8")
    path_base64: str | None = Field(default=None, description="the exact bytes of a path that is not UTF-8")


class FileList(Answer):
    path: str
    entries: list[FileEntry]
    total: int | None
    has_more: bool
    cursor: str | None


class FileChange(Answer):
    path: str
    size_bytes: int | None = None


class MoveAnswer(Answer):
    source: str
    destination: str


class GlobAnswer(Answer):
    """``truncated``: there may be more, since a bound on entries, depth or time was met."""

    path: str
    pattern: str
    entries: list[FileEntry]
    truncated: bool


class GrepMatch(Answer):
    path: str
    path_base64: str | None = None
    line: int = Field(description="from 1")
    column: int = Field(description="the byte in the line at which the first match begins, from 1")
    text: str = Field(description="the line, or a part of it around the match")


class GrepAnswer(Answer):
    """``skipped``: files that are binary, or that could not be opened."""

    path: str
    pattern: str
    matches: list[GrepMatch]
    truncated: bool
    searched: int
    skipped: int


class ReplaceAnswer(Answer):
    path: str
    replacements: int
    size_bytes: int


class ArchiveAnswer(Answer):
    """What an archive became. ``skipped``: sockets, FIFOs, devices and other things that are not stored."""

    path: str
    files: int
    directories: int
    links: int
    size_bytes: int
    skipped: int
