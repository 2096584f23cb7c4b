"""Where the two clients differ: see ``sandloom.sdk.aio.waiting``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

sleep = time.sleep


def pending(here: T) -> T:
    return here


def outgoing(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return pieces


def consumed(pieces: Iterator[bytes], consume: Callable[[Iterator[bytes]], T]) -> T:
    return consume(pieces)
