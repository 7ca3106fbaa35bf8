"""Waiting for work of another event loop, and taking turns in a task's own.

A loop may be closed, or stop running, in the middle of a task: ``asyncio.run`` in a worker
thread that ends, a program of one ``run_until_complete`` after another. Nothing notifies
those that wait in other loops, so they check once a second. This module alone asks whether a
loop still runs or is closed; so it also has :class:`PerLoop`.

Within a loop, tasks that are ready at the same moment run one after the other before it looks at
timers and sockets again: a thousand chats that are summarized together would hold it for half a
second. Work that takes long is therefore done for a few chats in each of its rounds.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

import attrs

T = TypeVar("T")

_CHECK_SECONDS: Final = 1.0
OFF_LOOP: Final = 500
"""Messages; pure work on more of them is done in a worker thread."""
AT_ONCE: Final = 4
"""Pieces of work in a round of the loop; each takes a millisecond or less, as a rule."""


def is_over(task: asyncio.Task[Any]) -> bool:
    """Whether nothing of a task goes on: it is done, or its loop does not run."""
    return task.done() or not task.get_loop().is_running()


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task; one whose loop was closed, with no step left to run, is passed over."""
    if not task.get_loop().is_closed():
        task.cancel()


class PerLoop(Generic[T]):
    """Keeps an object for each event loop, which is forgotten with it; for any thread.

    Args:
        make: makes the object of a loop that has none.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, T] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, loop: asyncio.AbstractEventLoop) -> T:
        """Return the loop's object, the same one each time."""
        with self._lock:
            value = self._of.get(loop)
            if value is None:
                # What still waits in an object refers to its loop. A loop that was closed then
                # would stay in the weak dictionary for ever, kept alive by its own value.
                for closed in [known for known in self._of if known.is_closed()]:
                    del self._of[closed]
                value = self._of[loop] = self._make()
            return value


def _runs(loop: weakref.ref[asyncio.AbstractEventLoop]) -> bool:
    known = loop()
    return known is not None and known.is_running()


class SharedTask(Generic[T]):
    """Work begun in the running loop; tasks of any loop may wait for its end.

    It counts as abandoned once its loop is closed or does not run. Whoever finds that goes on
    without it, usually with another one in its place. Should the loop run again, the late result
    may be installed only where this is still the current one.
    """

    def __init__(self) -> None:
        # A strong reference would keep a closed loop alive, with all that waited in it.
        self._loop = weakref.ref(asyncio.get_running_loop())
        self._outcome: Future[T | None] = Future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def start(
        cls,
        work: Callable[[SharedTask[T]], Coroutine[Any, Any, None]],
        *,
        when_cancelled: Callable[[SharedTask[T]], object],
    ) -> SharedTask[T]:
        """Begin work in a task of its own: no waiter's cancellation ends it.

        Args:
            work: given the shared task, which it finishes.
            when_cancelled: called in its loop when the task was cancelled, perhaps before it
                began.
        """
        shared = cls()

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                when_cancelled(shared)
            shared.finish()

        shared._task = asyncio.create_task(work(shared))
        shared._task.add_done_callback(ended)
        return shared

    @property
    def is_abandoned(self) -> bool:
        """Whether it has not ended and its loop does not run."""
        return not self._outcome.done() and not _runs(self._loop)

    @property
    def is_live(self) -> bool:
        """Whether it goes on: neither ended nor abandoned."""
        return not self._outcome.done() and not self.is_abandoned

    def finish(self, result: T | None = None) -> None:
        """End it, and wake all waiters. The first result counts."""
        if not self._outcome.done():
            self._outcome.set_result(result)

    def cancel(self) -> None:
        """Cancel the task that :meth:`start` began, in its own loop."""
        if self._task is not None and self.is_live:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def wait(self) -> T | None:
        """Wait for the end; a cancellation ends the wait alone.

        Returns:
            The result; None when it was cancelled or abandoned.
        """
        if self.is_live:
            # Wrapped once for all rounds: each wrap_future() adds a callback that stays.
            ended = asyncio.wrap_future(self._outcome)
            while self.is_live:
                await asyncio.wait([ended], timeout=_CHECK_SECONDS)
        return self._outcome.result() if self._outcome.done() else None


@attrs.define(eq=False)
class _Turn:
    loop: weakref.ref[asyncio.AbstractEventLoop]
    given: Future[None] = attrs.field(factory=Future[None])

    @property
    def is_abandoned(self) -> bool:
        return not _runs(self.loop)


class SharedSemaphore:
    """Like ``asyncio.Semaphore``, for tasks of any loops, first come, first served.

    A task in a loop that does not run neither holds a slot nor is given one.

    Args:
        count: how many tasks may hold a slot at once.
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
            await self._acquire(turn)
            yield
        finally:
            self._release(turn)

    async def _acquire(self, turn: _Turn) -> None:
        given: asyncio.Future[None] | None = None
        while True:
            with self._lock:
                # A loop that had stopped may run again: its turn was passed over in between.
                if turn not in self._held and turn not in self._waiting:
                    self._waiting.append(turn)
                self._hand_out()
                if turn in self._held:
                    return
            given = given or asyncio.wrap_future(turn.given)
            await asyncio.wait([given], timeout=_CHECK_SECONDS)

    def _release(self, turn: _Turn) -> None:
        with self._lock:
            self._held.discard(turn)
            if turn in self._waiting:
                self._waiting.remove(turn)
            self._hand_out()

    def _hand_out(self) -> None:
        """Give free slots to the waiting turns, in order."""
        # Only when a slot is wanted: to ask every loop at each release would cost more.
        if len(self._held) == self._count and self._waiting:
            self._held = {turn for turn in self._held if not turn.is_abandoned}
        while self._waiting and len(self._held) < self._count:
            turn = self._waiting.popleft()
            # A slot given to a loop that does not run would be lost until it runs again.
            if not turn.is_abandoned:
                self._held.add(turn)
                if not turn.given.done():
                    turn.given.set_result(None)


class FairShare:
    """Lets the tasks of one loop take turns; not for other threads."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def turn(self) -> None:
        """Wait until it is this task's turn; at once while few want one."""
        loop = asyncio.get_running_loop()
        self._count(loop)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn  # a cancelled waiter leaves a turn unused; the next round makes up for it

    def _count(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._counting:
            self._counting = True
            loop.call_soon(self._next_round, loop)

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._counting = False
        self._left = AT_ONCE
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._waiting or self._left < AT_ONCE:
            self._count(loop)


_shares: Final = PerLoop(FairShare)


async def take_turn() -> None:
    """Wait for a turn in the running loop, before work that takes long."""
    await _shares.of(asyncio.get_running_loop()).turn()


async def run_fairly(messages: int, work: Callable[[], T]) -> T:
    """Do pure work on messages in its turn, or in a thread where there are many of them."""
    if messages <= OFF_LOOP:
        await take_turn()
        return work()
    return await asyncio.to_thread(work)
