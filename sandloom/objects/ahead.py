"""Two stages of a stream side by side."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable


def ahead(chunks: Iterable[bytes], count: int) -> Generator[bytes, None, None]:
    """The chunks, made in a thread of their own while earlier ones are used, at most ``count`` of them ahead.

    What making them raises is raised here, after the chunks before it. Closing this stops and awaits the thread.
    """
    stage = _Stage(chunks, count)
    thread = threading.Thread(target=stage.run, name="ahead", daemon=True)
    thread.start()
    try:
        while (chunk := stage.take()) is not None:
            yield chunk
    finally:
        stage.stop()
        thread.join()


class _Stage:
    def __init__(self, chunks: Iterable[bytes], count: int) -> None:
        self._chunks = chunks
        self._made: deque[bytes | BaseException | None] = deque()
        self._is_made = threading.Semaphore(0)
        self._room = threading.Semaphore(count)
        self._stopped = False

    def run(self) -> None:
        try:
            for chunk in self._chunks:
                self._room.acquire()
                if self._stopped:
                    return
                self._add(chunk)
        except BaseException as error:
            self._add(error)
        else:
            self._add(None)

    def take(self) -> bytes | None:
        """None at the end."""
        self._is_made.acquire()
        made = self._made.popleft()
        if isinstance(made, BaseException):
            raise made
        self._room.release()
        return made

    def stop(self) -> None:
        self._stopped = True
        self._room.release()

    def _add(self, made: bytes | BaseException | None) -> None:
        self._made.append(made)
        self._is_made.release()
