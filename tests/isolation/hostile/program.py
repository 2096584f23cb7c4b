"""What a hostile program is, and the way each says what it got."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")

BASIC, STANDARD, STRICT = "basic", "standard", "strict"
EVERY_LEVEL = (BASIC, STANDARD, STRICT)

#: What the secrets of the host and of the other sandbox begin with; no program is told the rest.
MARK = "sandloom-hostile-" + "mark"

#: What an attack is told: JSON made by the test, such as pids and paths that a real attacker would have to guess.
Facts = dict[str, Any]


class Held(Exception):
    """The attack came to nothing, and no system call said so."""


@dataclass(frozen=True, slots=True)
class Program:
    """``attack`` returns what it reached (a text), or ``None``, or raises ``OSError`` or ``Held``.

    ``control``: as whom the same attack succeeds outside, so that it is known to be a real one: ``user``, ``root`` (in
    mount and UTS namespaces of its own), ``netns`` (root, also with a network of its own); else why it is not tried.
    ``reaches``: what is not contained, at the levels ``at``; empty: contained everywhere. ``network``: as the sandbox
    has it. ``bound``: the budget with which it is contained. ``alone``: it needs a command to itself, since it harms
    that, or what it leaves is looked at. ``planted``: it attacks what only root can have put into the workspace.
    ``by_uid``: a uid of its own is what contains it; where sandboxes share the worker's, it reaches its aim.
    """

    name: str
    attack: Callable[[Facts], str | None]
    control: str
    reaches: str
    at: tuple[str, ...]
    network: str
    bound: str
    alone: bool
    planted: bool
    by_uid: bool

    @property
    def tries(self) -> str:
        return (self.attack.__doc__ or "").strip()


PROGRAMS: dict[str, Program] = {}


def program(
    control: str,
    *,
    reaches: str = "",
    at: tuple[str, ...] = EVERY_LEVEL,
    network: str = "isolated",
    bound: str = "",
    alone: bool = False,
    planted: bool = False,
    by_uid: bool = False,
) -> Callable[[Callable[[Facts], str | None]], Callable[[Facts], str | None]]:
    """Enters a function, whose name and docstring are the program's."""

    def enter(attack: Callable[[Facts], str | None]) -> Callable[[Facts], str | None]:
        name = attack.__name__
        assert name not in PROGRAMS, name
        levels = at if reaches else ()
        PROGRAMS[name] = Program(name, attack, control, reaches, levels, network, bound, alone, planted, by_uid)
        return attack

    return enter


#: How a kernel says "not for you" or "I have no such thing", before it looked at what was asked.
REFUSALS = frozenset(
    {
        errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT,
        errno.ESOCKTNOSUPPORT,
    }
)  # fmt: skip


def looked_at(attempt: Callable[[], object]) -> str:
    """For attempts that are wrong on purpose, since the right one would harm: any other error than a refusal counts."""
    try:
        attempt()
    except OSError as error:
        if error.errno in REFUSALS:
            raise
        return f"the kernel looked at it: {errno.errorcode.get(error.errno or 0, str(error))}"
    return "the kernel did it"


def read_mark(path: str) -> str:
    """Reaches a secret by its path."""
    with open(path, encoding="utf-8", errors="replace") as stream:
        return found(stream.read(4096))


def found(text: str) -> str:
    if MARK not in text:
        raise Held(f"something without the mark: {text[:80]!r}")
    return f"a secret: {text[:40]!r}"


def first_of(items: Iterable[Item], attempt: Callable[[Item], object]) -> str:
    """The first item with which the attempt works; raises the last error when none does."""
    last: OSError | Held = Held("nothing to try")
    for item in items:
        try:
            attempt(item)
        except (OSError, Held) as error:
            last = error
        else:
            return str(item)
    raise last


def create(path: str) -> None:
    """Makes a file there and removes it."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)
