"""Waiting in a task for what another thread, or another task, does.

``concurrent.futures.Future`` serves any number of waiters in any thread, with a condition of its
own for each piece of work. A save has one waiter, in a loop that is known from the start; what
ends together (a group of saves that share a commit) wakes each loop once, because
``loop.call_soon_threadsafe`` costs a system call each time.

A save must never be abandoned half-way: when ``CancelledError`` leaves it, the append is in
the log or never will be. ``asyncio.shield`` alone does not do that: the cancelled caller leaves
while the work goes on, and where it catches the cancellation to wait, a second one interrupts it.
"""

# Giving the outcomes of many hand-offs at once is one mechanism with giving that of one.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from agent_memory.errors import StorageError, StorageUnavailableError
from agent_memory.keys import ChatKey
from agent_memory.storage._engine.event_loops import PerLoop

T = TypeVar("T")

_DECODED_AT_ONCE: Final = 200  # entries: about a millisecond


class Handoff(Generic[T]):
    """The outcome of work in another thread; made, and waited for, in one task.

    Any thread may give the outcome, once: with :meth:`set_result` or :meth:`set_exception`, or
    with others' by :func:`answer_all`.

    Attributes:
        work: what must live until then, such as a task.
    """

    __slots__ = (
        "_answered",
        "_arrived",
        "_error",
        "_loop",
        "_result",
        "_waiter",
        "work",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._answered = False
        self._arrived = False  # the loop's thread alone reads and writes it
        self._result: T | None = None
        self._error: BaseException | None = None
        self.work: object = None

    @property
    def is_answered(self) -> bool:
        """Whether the outcome has been given."""
        return self._answered

    def set_result(self, result: T) -> None:
        """Give the outcome."""
        self._result = result
        _wake_waiters([self])

    def set_exception(self, error: BaseException) -> None:
        """Give the failure that :meth:`wait` raises."""
        self._error = error
        _wake_waiters([self])

    def take_outcome(self, ended: asyncio.Task[T] | concurrent.futures.Future[T]) -> None:
        """Give the outcome of work that has ended: its result, error or cancellation."""
        try:
            result = ended.result()
        except BaseException as error:  # noqa: BLE001 - the waiter raises it
            self.set_exception(error)
        else:
            self.set_result(result)

    async def wait(self) -> T:
        """Wait for the outcome.

        A cancellation is remembered and raised when the work has ended: a thread cannot be called
        back. It hides an error of the work.
        """
        cancellation: asyncio.CancelledError | None = None
        while not self._arrived:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancellation = error
        try:
            if cancellation is not None:
                raise cancellation
            if self._error is not None:
                raise self._error
        finally:
            # Its traceback refers to this frame, and the frame, through self, to it.
            self._error = None
        return cast("T", self._result)

    def _arrive(self) -> None:
        self._arrived = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def answer_all(answers: Iterable[tuple[Handoff[T], T | Exception]]) -> None:
    """Give several outcomes, and wake each loop that waits for some of them once.

    An outcome that is an exception is raised by the :meth:`Handoff.wait` that it answers.
    """
    handoffs: list[Handoff[T]] = []
    for handoff, outcome in answers:
        if isinstance(outcome, Exception):
            handoff._error = outcome
        else:
            handoff._result = outcome
        handoffs.append(handoff)
    _wake_waiters(handoffs)


def _wake_waiters(handoffs: Iterable[Handoff[Any]]) -> None:
    here = asyncio._get_running_loop()  # get_running_loop() raises in a thread without one
    elsewhere: dict[asyncio.AbstractEventLoop, list[Handoff[Any]]] = {}
    for handoff in handoffs:
        if handoff._loop is here:
            # From within the loop no system call is needed to wake it. (Only the handler of a
            # signal runs in its thread while the loop sleeps, and no handler gives an outcome.)
            handoff._arrive()
            handoff._answered = True
        else:
            elsewhere.setdefault(handoff._loop, []).append(handoff)
    for loop, waiting in elsewhere.items():
        waker_of(loop).put(loop, [handoff._arrive for handoff in waiting])
        # Not before: whoever is interrupted here fails those that have no answer yet.
        for handoff in waiting:
            handoff._answered = True


def own_copy(error: BaseException) -> BaseException:
    """Return a copy of an error that several wait for: raising one adds to its traceback."""
    try:
        copied = copy.copy(error)
    except Exception:  # noqa: BLE001 - its class wants other arguments; some look into them
        return error
    copied.__cause__ = error.__cause__
    return copied.with_traceback(error.__traceback__)


def error_for_waiter(error: BaseException, key: ChatKey | None) -> BaseException:
    """Return the error that one of several waiters raises: a copy of its own.

    An interrupt that ended the work, such as ``SystemExit``, was not meant for the waiter, which
    gets a ``StorageUnavailableError`` with it as the cause.
    """
    if not isinstance(error, Exception):
        interrupted = StorageUnavailableError(
            f"{error!r} ended the work; whether it was done is unknown", stored=None
        )
        interrupted.__cause__ = error
        error = interrupted
    copied = own_copy(error)
    if isinstance(copied, StorageError) and copied.key is None:
        copied.key = key
    return copied


def loop_ending(*, has_begun: bool) -> StorageUnavailableError:
    """Return the error for work that was cancelled: only the end of its loop cancels it."""
    if has_begun:
        return StorageUnavailableError(
            "the event loop that the store works on is ending; whether it was stored is unknown",
            stored=None,
        )
    return StorageUnavailableError(
        "the event loop that the store works on is ending; nothing was done", stored=False
    )


async def run_uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, even when the caller is cancelled, and return its result.

    A cancellation of the caller is remembered and raised when the work has ended, so that
    nothing is in flight once this has left. The work itself must be bounded in time.
    """
    task = asyncio.ensure_future(work)
    outcome: Handoff[T] = Handoff()
    task.add_done_callback(outcome.take_outcome)
    return await outcome.wait()


async def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for the result of work in another thread, as :func:`run_uncancelled` does.

    Unlike ``asyncio.wrap_future`` it never cancels that work: ``asyncio.run`` cancels every
    task when it ends, also those inside :func:`run_uncancelled`, and a thread cannot be called
    back.
    """
    outcome: Handoff[T] = Handoff()
    future.add_done_callback(outcome.take_outcome)
    return await outcome.wait()


async def decode(function: Callable[[], T], count: int) -> T:
    """Call a function that decodes `count` entries; in a thread if they are many.

    The loop that it would hold up is the caller's, and serves others too.
    """
    return function() if count <= _DECODED_AT_ONCE else await asyncio.to_thread(function)


class LoopWaker:
    """What is to be called soon in one loop; :meth:`put` is for any thread.

    An interrupt, such as ``KeyboardInterrupt``, may end a call half-way; the same function is then
    called again, so it must be safe to repeat.
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
        try:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks are gone
                loop.call_soon_threadsafe(self._call_all, loop)
        except BaseException:
            self._scheduled = False  # else nobody who puts something here later would be called
            raise

    def _call_all(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._scheduled = False
        for index, wake in enumerate(waiting):
            try:
                wake()
            except BaseException:
                self.put(loop, waiting[index:])  # an interrupt; the others still wait
                raise


_wakers: Final = PerLoop(LoopWaker)


def waker_of(loop: asyncio.AbstractEventLoop) -> LoopWaker:
    """Return the loop's waker, the same one each time."""
    return _wakers.of(loop)
