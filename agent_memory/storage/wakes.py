"""Waking tasks of an event loop from other threads, many with one call.

``loop.call_soon_threadsafe`` costs a system call each time. When a thread ends the work of many
tasks at once (a group of saves that share a commit), one such call wakes all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final


class Wakes:
    """What is to be called soon in one loop; :meth:`put` is for any thread.

    What is called may be called again when something interrupted it, and must bear that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._scheduled = False

    def put(self, loop: asyncio.AbstractEventLoop, wakes: Sequence[Callable[[], None]]) -> None:
        """Have all of `wakes` called in the loop soon, in order; never if it is closed."""
        with self._lock:
            self._waiting += wakes
            if self._scheduled:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
            loop.call_soon_threadsafe(self._call_all, loop)

    def _call_all(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._scheduled = False
        for index, wake in enumerate(waiting):
            try:
                wake()
            except BaseException:
                self.put(loop, waiting[index:])  # such as an interrupt: others wait all the same
                raise


_lock: Final = threading.Lock()
_of_loops: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Wakes]] = (
    weakref.WeakKeyDictionary()
)


def wakes_of(loop: asyncio.AbstractEventLoop) -> Wakes:
    """Return the loop's wakes, the same ones each time."""
    with _lock:
        wakes = _of_loops.get(loop)
        if wakes is None:
            wakes = _of_loops[loop] = Wakes()
        return wakes
