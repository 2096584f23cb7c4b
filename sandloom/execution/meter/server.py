"""The meter's event loop: counts what it is asked at once, and watched sandboxes again and again, in little time."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import socket
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from .walk import Walk

#: Between two counts of one sandbox at least, and so many times as long as one takes.
INTERVAL_SECONDS = 0.25
_INTERVAL_COUNTS = 4
# A quarter of a processor at most: after each slice of work it sleeps for three times what that used, unless someone
# waits. Of ordinary priority: commands that keep every processor busy must not keep it from counting.
SLICE_SECONDS = 0.02
_REST = 3
_MAX_DATAGRAM_BYTES = 64 * 1024


@dataclass
class _Watched:
    """``running``: commands write; ``due``: when it is counted next, ``None``: nothing has changed."""

    name: str
    paths: list[str]
    bounds: tuple[int | None, int | None]
    running: bool = False
    due: float | None = None
    counted: float = 0.0
    spent: float = 0.0
    suspected: bool = False

    @property
    def interval_seconds(self) -> float:
        return max(INTERVAL_SECONDS, _INTERVAL_COUNTS * self.spent)


class Server:
    """``serve`` returns when the worker is gone.

    Requests, one JSON object each: ``{"do": "count", "id", "paths", "bounds"}``, ``{"do": "watch" | "look", "name",
    "paths", "bounds"}``, ``{"do": "rest" | "forget", "name"}``. Answers: a count, with its ``id`` or ``name``.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._watched: dict[str, _Watched] = {}
        self._asked: list[tuple[int, Walk]] = []
        self._current: tuple[_Watched, Walk] | None = None
        self._rest_until = 0.0
        self._spent = 0.0

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            if poll.poll(self._timeout_ms()) and not self._read():
                return
            self._work()

    def _timeout_ms(self) -> float | None:
        if self._asked:
            return 0
        now = time.monotonic()
        wake = self._rest_until
        if self._current is None:
            due = [watched.due for watched in self._watched.values() if watched.due is not None]
            if not due:
                return None
            wake = max(wake, min(due))
        return max(0.0, 1000 * (wake - now)) + 1 if wake > now else 0

    def _read(self) -> bool:
        while True:
            try:
                data = self._socket.recv(_MAX_DATAGRAM_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._take(json.loads(data))

    def _take(self, request: dict[str, Any]) -> None:
        wanted = request["do"]
        if wanted == "count":
            self._asked.append((request["id"], Walk(request["paths"], *request["bounds"])))
            return
        name = request["name"]
        if wanted == "forget":
            self._watched.pop(name, None)
            return
        now = time.monotonic()
        watched = self._watched.get(name)
        if wanted == "rest":
            if watched is not None:
                watched.running = False
                watched.due = max(now, watched.counted + watched.interval_seconds)
            return
        if watched is None:
            watched = _Watched(name, request["paths"], tuple(request["bounds"]))
            self._watched[name] = watched
        if wanted == "watch":
            watched.running = True
        watched.due = watched.due or max(now + INTERVAL_SECONDS, watched.counted + watched.interval_seconds)

    def _work(self) -> None:
        until = time.monotonic() + SLICE_SECONDS
        if self._asked:
            number, walk = self._asked[0]
            if walk.step(until):
                del self._asked[0]
                self._answer({"id": number, **walk.result()})
            return
        if time.monotonic() < self._rest_until:
            return
        if self._current is None:
            self._begin()
        if self._current is None:
            return
        began = time.process_time()
        watched, walk = self._current
        done = walk.step(until)
        used = time.process_time() - began
        self._spent += used
        if done:
            self._current = None
            watched.spent = self._spent
            self._counted(watched, walk)
        self._rest_until = 0.0 if watched.suspected else time.monotonic() + _REST * used

    def _begin(self) -> None:
        now = time.monotonic()
        due = [watched for watched in self._watched.values() if watched.due is not None and watched.due <= now]
        if due:
            next_one = min(due, key=lambda watched: watched.due or 0.0)
            next_one.due, self._spent = None, 0.0
            self._current = next_one, Walk(next_one.paths, *next_one.bounds)

    def _counted(self, watched: _Watched, walk: Walk) -> None:
        if self._watched.get(watched.name) is not watched:
            return
        now = time.monotonic()
        watched.counted = now
        reached = walk.over or bool(walk.problem)
        if reached and not watched.suspected:
            # What was renamed meanwhile may have been counted twice, so nobody is ended after one pass alone.
            watched.suspected, watched.due = True, now
            return
        watched.suspected = False
        if watched.running:
            watched.due = watched.due or now + watched.interval_seconds
        self._answer({"name": watched.name, **walk.result()})

    def _answer(self, answer: dict[str, Any]) -> None:
        # A worker that is gone is noticed by the next read.
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(answer).encode())


def main(fd: int) -> NoReturn:
    """The process: ``fd`` is the socket to the worker."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sock = socket.socket(fileno=fd)
    gc.freeze()
    Server(sock).serve()
    os._exit(0)
