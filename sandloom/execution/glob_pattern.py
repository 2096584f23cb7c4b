"""Patterns of paths: ``*``, ``?`` and ``[…]`` within a name, ``**`` for any number of directories, ``{a,b}``. Pure.

A wildcard matches names that begin with a dot like any other. Names are compared byte for byte: two spellings of one
character (NFC, NFD) are two names, as they are for the file system.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Final

from sandloom.execution.file_faults import FaultKind, FileFault

_MAX_ALTERNATIVES = 64
_MAX_PARTS = 128
_BRACES = re.compile(r"\{([^{}]*)\}")
_DEEP: Final = None  # ``**``

States = frozenset[tuple[int, int]]


class GlobPattern:
    """Follows a walk: from the ``start`` each name leads from the states of its directory to its own."""

    def __init__(self, text: str) -> None:
        """Raises FileFault(PATTERN_INVALID)."""
        self._alternatives = [_compile(one) for one in _expand(text)]
        self.start = self._closure({(number, 0) for number in range(len(self._alternatives))})

    def step(self, states: States, name: bytes) -> tuple[bool, States]:
        """Whether the name matches as a whole, and the states for what lies below it: none when nothing can match."""
        text = name.decode("utf-8", "surrogateescape")
        following: set[tuple[int, int]] = set()
        for number, at in states:
            parts = self._alternatives[number]
            if at == len(parts):
                continue
            part = parts[at]
            if part is _DEEP:
                following.add((number, at))
            elif part.match(text):
                following.add((number, at + 1))
        closed = self._closure(following)
        matched = any(at == len(self._alternatives[number]) for number, at in closed)
        return matched, frozenset(state for state in closed if state[1] < len(self._alternatives[state[0]]))

    def matches(self, parts: tuple[bytes, ...]) -> bool:
        states, matched = self.start, False
        for part in parts:
            matched, states = self.step(states, part)
        return matched

    def _closure(self, states: set[tuple[int, int]]) -> States:
        """With what ``**`` reaches by standing for no directory at all."""
        found = set(states)
        for number, at in states:
            parts = self._alternatives[number]
            while at < len(parts) and parts[at] is _DEEP:
                at += 1
                found.add((number, at))
        return frozenset(found)


def name_pattern(text: str) -> GlobPattern:
    """A pattern without a slash is one of names, in any directory."""
    return GlobPattern(text if "/" in text else f"**/{text}")


def _expand(text: str) -> list[str]:
    done: list[str] = []
    pending = [text]
    while pending:
        one = pending.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
        else:
            pending += [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
        if len(done) + len(pending) > _MAX_ALTERNATIVES:
            raise _invalid(f"has more than {_MAX_ALTERNATIVES} alternatives")
    return done


def _compile(text: str) -> list[re.Pattern[str] | None]:
    parts = [part for part in text.split("/") if part != "."]
    if text.startswith("/") or ".." in parts:
        raise _invalid("must be relative to the path, without '..'")
    named = [part for part in parts if part]
    if not named or len(named) > _MAX_PARTS:
        raise _invalid(f"must have 1 to {_MAX_PARTS} components")
    return [_DEEP if part == "**" else re.compile(fnmatch.translate(part)) for part in named]


def _invalid(reason: str) -> FileFault:
    return FileFault(FaultKind.PATTERN_INVALID, f"the pattern {reason}")
