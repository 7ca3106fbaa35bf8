"""A clock that makes the time-outs of an event loop pass at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest

T = TypeVar("T")


class LoopClock:
    """The clock of a running event loop, which can be set forward.

    With it a test gives time-outs of a minute, which no machine is too slow for, and lets them
    pass when what is to be cut short has begun.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = loop.time
        self._ahead = 0.0
        loop.time = lambda: self._time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds

    async def cut_short(self, work: Awaitable[T], begun: Awaitable[object], seconds: float) -> T:
        """Do some work, and let so much time pass when it has begun."""
        task = asyncio.ensure_future(work)
        await begun
        self.advance(seconds)
        return await task

    def restore(self) -> None:
        self._loop.time = self._time


@pytest.fixture
async def loop_clock() -> AsyncIterator[LoopClock]:
    """The clock of the test's event loop."""
    clock = LoopClock(asyncio.get_running_loop())
    yield clock
    clock.restore()
