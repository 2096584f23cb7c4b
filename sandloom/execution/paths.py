"""Sandbox paths: their syntax and their canonical form. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandloom.execution.file_faults import FaultKind, FileFault

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
CHANGEABLE_ROOTS = ("workspace",)
READABLE_ROOTS = ("workspace", "home", "envs")


@dataclass(frozen=True, slots=True)
class SandboxPath:
    """``/<root>/<parts…>``; two paths name the same place exactly when they are equal."""

    root: str
    parts: tuple[bytes, ...]

    @property
    def is_root(self) -> bool:
        return not self.parts

    @property
    def name(self) -> bytes:
        """The last component; of a root its own name."""
        return self.parts[-1] if self.parts else self.root.encode()

    @property
    def parent_parts(self) -> tuple[bytes, ...]:
        return self.parts[:-1]

    @property
    def raw(self) -> bytes:
        """The exact bytes."""
        return b"/".join([b"", self.root.encode(), *self.parts])

    @property
    def text(self) -> str:
        """For people: bytes that are not UTF-8 show as U+FFFD."""
        return "/".join(["", self.root, *(part.decode("utf-8", "replace") for part in self.parts)])

    def child(self, *names: bytes) -> SandboxPath:
        return replace(self, parts=(*self.parts, *names))

    def within(self, other: SandboxPath) -> bool:
        """Whether this is ``other`` or lies below it."""
        return self.root == other.root and self.parts[: len(other.parts)] == other.parts


def parse_path(text: str, *, change: bool = False) -> SandboxPath:
    """The path a client wrote; ``change`` demands one that calls may change.

    A name that is not UTF-8 is written with each odd byte 0xNN as the code point U+DCNN. One slash at the end is
    accepted. Raises FileFault(PATH_INVALID).
    """
    raw = _encode(text)
    if not raw.startswith(b"/"):
        raise _invalid("must be absolute")
    root, *parts = raw[1:].removesuffix(b"/").split(b"/")
    roots = CHANGEABLE_ROOTS if change else READABLE_ROOTS
    if root.decode("ascii", "replace") not in roots:
        raise _invalid("must lie below " + " or ".join(f"/{name}" for name in roots))
    for part in parts:
        _check_part(part)
    return SandboxPath(root.decode(), tuple(parts))


def _encode(text: str) -> bytes:
    if "\x00" in text:
        raise _invalid("must not hold NUL")
    if len(text) > MAX_PATH_BYTES:
        raise _invalid(f"must not be longer than {MAX_PATH_BYTES} bytes")
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _invalid("must not hold lone surrogates other than U+DC80 to U+DCFF") from None
    if len(raw) > MAX_PATH_BYTES:
        raise _invalid(f"must not be longer than {MAX_PATH_BYTES} bytes")
    return raw


def _check_part(part: bytes) -> None:
    if part in (b"", b".", b".."):
        raise _invalid("must not hold '.', '..' or empty components")
    if len(part) > MAX_NAME_BYTES:
        raise _invalid(f"must not hold a name longer than {MAX_NAME_BYTES} bytes")


def _invalid(reason: str) -> FileFault:
    return FileFault(FaultKind.PATH_INVALID, f"the path {reason}")
