"""Waking tasks of an event loop from other threads, many with one call.

``loop.call_soon_threadsafe`` costs a system call each time. When a thread ends the work of many
tasks at once (a group of saves that share a commit), one such call wakes all of them: within
:func:`together` they are woken at its end, else as soon as the first of them is ready, whose loop
would then take the interpreter from the thread that still has to tell the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Final


class Wakes:
    """What is to be called soon in one loop; :meth:`put` is for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._scheduled = False

    def put(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Have `wake` called in the loop soon, in the order of calls; never if it is closed."""
        with self._lock:
            self._waiting.append(wake)
            if self._scheduled:
                return
            self._scheduled = True
        held: list[tuple[Wakes, asyncio.AbstractEventLoop]] | None = getattr(_held, "loops", None)
        if held is None:
            self._schedule(loop)
        else:
            held.append((self, loop))

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
            loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._scheduled = False
        for wake in waiting:
            wake()


_held: Final = threading.local()


@contextlib.contextmanager
def together() -> Generator[None]:
    """Wake what this thread makes ready within the block at its end, each loop once."""
    held: list[tuple[Wakes, asyncio.AbstractEventLoop]] = []
    _held.loops = held
    try:
        yield
    finally:
        _held.loops = None
        for wakes, loop in held:
            wakes._schedule(loop)


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
