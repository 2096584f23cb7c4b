"""Where the two clients differ: sleeping, and files of this machine, which are read and written by a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

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


sleep = asyncio.sleep


async def outgoing(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces, each made by a thread."""
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece


async def consumed(pieces: AsyncIterator[bytes], consume: Callable[[Iterator[bytes]], T]) -> T:
    """What a thread makes of the pieces. When the wait is cancelled they end with an exception there, and the thread is
    waited for: nothing of it goes on behind the caller's back."""
    loop = asyncio.get_running_loop()
    stopped, pulls = asyncio.Event(), set[asyncio.Task[Any]]()

    async def following() -> bytes | None:
        if stopped.is_set() or (pull := asyncio.current_task()) is None:
            raise asyncio.CancelledError
        pulls.add(pull)
        try:
            return await anext(pieces, None)
        finally:
            pulls.discard(pull)

    def here() -> Iterator[bytes]:
        while (piece := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
            yield piece

    working = asyncio.ensure_future(asyncio.to_thread(consume, here()))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stopped.set()
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise
