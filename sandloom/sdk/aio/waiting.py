"""Where the two clients differ: sleeping, and files of this machine, which are read and written by a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

T = TypeVar("T")


class Block(Protocol):
    """What can be used in ``async with`` and is itself what that names."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


B = TypeVar("B", bound=Block)


class Pending(Generic[B]):
    """Something that is on its way: ``await`` it, or use it in ``async with`` at once."""

    def __init__(self, coming: Coroutine[Any, Any, B]) -> None:
        self._coming = coming
        self._here: B | None = None

    def __await__(self) -> Generator[Any, Any, B]:
        return self._coming.__await__()

    async def __aenter__(self) -> B:
        self._here = await self._coming
        return await self._here.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._here is not None:
            await self._here.__aexit__(kind, error, trace)


def pending(coming: Coroutine[Any, Any, B]) -> Pending[B]:
    return Pending(coming)


def shielded(seconds: float) -> AbstractContextManager[object]:
    """A block that a cancelled caller waits for, but no longer than this."""
    return anyio.move_on_after(seconds, shield=True)


async def sleep(seconds: float) -> None:
    await anyio.sleep(seconds)


async def outgoing(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, each made by a thread."""
    while piece := await anyio.to_thread.run_sync(next, pieces, b""):
        yield piece


async def consumed(pieces: AsyncIterator[bytes], consume: Callable[[Iterator[bytes]], T]) -> T:
    """What a thread makes of the pieces. When the wait is cancelled the thread meets that as an exception."""

    async def following() -> bytes:
        return await anext(pieces, b"")

    def here() -> Iterator[bytes]:
        while piece := anyio.from_thread.run(following):
            yield piece

    return await anyio.to_thread.run_sync(consume, here())
