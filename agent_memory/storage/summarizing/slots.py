"""Bounding how much goes on at once, across event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager


class Slots:
    """So many may work at once; the others wait in the order they came.

    Like ``asyncio.Semaphore``, but for tasks of any loops.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Hold a slot for the length of a ``with`` block."""
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    async def _acquire(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = Future[None]()
            self._waiting.append(turn)
        try:
            await asyncio.shield(asyncio.wrap_future(turn))
        except asyncio.CancelledError:
            with self._lock:
                given = turn.done()
                if not given:
                    self._waiting.remove(turn)
            if given:
                self._release()
            raise

    def _release(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            turn = self._waiting.popleft()
            turn.set_result(None)
