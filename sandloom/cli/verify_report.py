"""What a verification found: one outcome per check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandloom.errors import SandloomError

Status = Literal["pass", "fail", "skip"]


class Unmet(Exception):
    """What a check demands is not so; the message says what was seen."""


class Skipped(Exception):
    """A check that could not be made; the message says what it needs. It is not a pass."""


def demand(condition: bool, seen: object) -> None:
    """Raises Unmet with what was seen, unless the condition holds."""
    if not condition:
        raise Unmet(str(seen))


def need(condition: bool, what: str) -> None:
    """Raises Skipped with what the check needs, unless it is there."""
    if not condition:
        raise Skipped(what)


def refused(kind: type[SandloomError], call: Callable[[], object]) -> None:
    """Raises Unmet unless the call is answered with this error."""
    try:
        answer = call()
    except kind:
        return
    except SandloomError as error:
        raise Unmet(f"{error.code} instead of {kind.code}") from error
    raise Unmet(f"{answer!r:.200} instead of {kind.code}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """``detail`` is what was seen, in one line."""

    name: str
    status: Status
    detail: str
    seconds: float


class Report:
    """Runs checks one after the other; ``tell`` hears of each outcome at once."""

    def __init__(self, tell: Callable[[Outcome], None]) -> None:
        self._tell = tell
        self.outcomes: list[Outcome] = []

    @property
    def passed(self) -> bool:
        return bool(self.outcomes) and all(outcome.status == "pass" for outcome in self.outcomes)

    def check(self, name: str, made: Callable[[], str]) -> bool:
        """Whether it passed. ``made`` returns what it saw; whatever it raises is an outcome too, since a deployment
        may answer anything."""
        started = time.monotonic()
        status: Status = "fail"
        try:
            detail = made()
            status = "pass"
        except Skipped as reason:
            status, detail = "skip", str(reason)
        except Unmet as unmet:
            detail = str(unmet)
        except SandloomError as error:
            detail = f"{error.code}: {error.detail}"
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
        outcome = Outcome(name, status, " ".join(detail.split()), round(time.monotonic() - started, 3))
        self.outcomes.append(outcome)
        self._tell(outcome)
        return status == "pass"
