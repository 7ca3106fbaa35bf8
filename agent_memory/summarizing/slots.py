"""Bounding how much goes on at once, across event loops and threads."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Final

import attrs

_LOOK_AGAIN: Final = 1.0  # seconds; a loop that is stopped or closed tells nobody


@attrs.define(eq=False)
class _Turn:
    loop: weakref.ref[asyncio.AbstractEventLoop]
    given: Future[None] = attrs.field(factory=Future[None])

    @property
    def is_dead(self) -> bool:
        loop = self.loop()
        return loop is None or not loop.is_running()


class Slots:
    """So many may work at once; the others wait in the order they came.

    Like ``asyncio.Semaphore``, but for tasks of any loops. Whose loop does not run any more
    neither holds a slot nor is given one.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: set[_Turn] = set()
        self._waiting: deque[_Turn] = deque()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Hold a slot for the length of a ``with`` block."""
        turn = _Turn(weakref.ref(asyncio.get_running_loop()))
        try:
            await self._wait(turn)
            yield
        finally:
            self._leave(turn)

    async def _wait(self, turn: _Turn) -> None:
        given: asyncio.Future[None] | None = None
        while True:
            with self._lock:
                if turn not in self._held and turn not in self._waiting:
                    self._waiting.append(turn)
                self._hand_out()
                if turn in self._held:
                    return
            given = given or asyncio.wrap_future(turn.given)
            await asyncio.wait([given], timeout=_LOOK_AGAIN)

    def _leave(self, turn: _Turn) -> None:
        with self._lock:
            self._held.discard(turn)
            if turn in self._waiting:
                self._waiting.remove(turn)
            self._hand_out()

    def _hand_out(self) -> None:
        """Give free slots to those who wait, in their order."""
        if len(self._held) == self._count and self._waiting:
            self._held = {turn for turn in self._held if not turn.is_dead}
        while self._waiting and len(self._held) < self._count:
            turn = self._waiting.popleft()
            if not turn.is_dead:
                self._held.add(turn)
                if not turn.given.done():
                    turn.given.set_result(None)
