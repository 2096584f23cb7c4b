"""The threads of a batch: attempts side by side, and one thread that plans."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from sandloom.batch.attempts import Attempts
from sandloom.batch.plan import Attempt, Plan
from sandloom.batch.plan import Final as FinalJob
from sandloom.batch.retries import Outcome

_TICK_SECONDS: Final = 0.5


class Listener(Protocol):
    """Called by the thread that plans."""

    def final(self, final: FinalJob) -> None: ...

    def tick(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Done:
    attempt: Attempt | None
    outcome: Outcome | None = None
    error: BaseException | None = None


class Runner:
    """At most ``concurrency`` attempts and releases at once.

    Its threads end with the process: an attempt that is cut off anywhere is taken up by another run.
    """

    def __init__(
        self, plan: Plan, attempts: Attempts, listener: Listener, *, concurrency: int, shared: Callable[[str], str]
    ) -> None:
        self._plan = plan
        self._attempts = attempts
        self._listener = listener
        self._concurrency = concurrency
        self._shared = shared
        self._work: queue.SimpleQueue[Attempt | str | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[_Done] = queue.SimpleQueue()
        self._busy = 0
        self._to_release: list[str] = []
        self._threads = 0

    def run(self, leftovers: Iterable[str] = ()) -> None:
        """To the end of the plan; ``leftovers``: sandboxes of earlier runs that nothing needs any more.

        Raises what an attempt raised; others then go on until the process ends.
        """
        self._to_release += leftovers
        try:
            while self._hand_out():
                self._take_in()
                self._listener.tick()
        finally:
            for _ in range(self._threads):
                self._work.put(None)

    def _hand_out(self) -> bool:
        """Whether anything is under way."""
        while self._busy < self._concurrency:
            item = self._to_release.pop() if self._to_release else self._plan.begin()
            if item is None:
                break
            self._busy += 1
            if self._threads < self._busy:
                self._threads += 1
                threading.Thread(target=self._work_on, name=f"batch-{self._threads}", daemon=True).start()
            self._work.put(item)
        return self._busy > 0

    def _take_in(self) -> None:
        try:
            done = self._done.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            return
        self._busy -= 1
        if done.error is not None:
            raise done.error
        if done.attempt is None or done.outcome is None:
            return
        finals = self._plan.end(done.attempt.job.id, done.outcome)
        keys = {final.job.sandbox for final in finals} - {None}
        self._to_release += [self._shared(key) for key in keys if key is not None and self._plan.key_is_done(key)]
        for final in finals:
            self._listener.final(final)

    def _work_on(self) -> None:
        while (item := self._work.get()) is not None:
            try:
                if isinstance(item, str):
                    self._attempts.release(item)
                    self._done.put(_Done(None))
                else:
                    outcome = self._attempts.carry_out(item)
                    # Its document is in the journal; the plan needs how it ended.
                    self._done.put(_Done(item, outcome))
            except BaseException as error:
                self._done.put(_Done(None, error=error))
