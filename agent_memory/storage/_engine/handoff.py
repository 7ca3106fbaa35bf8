"""Waiting in a task for what another thread, or another task, does.

``concurrent.futures.Future`` serves any number of waiters in any thread, with a condition of its
own for each piece of work. A save has one waiter, in a loop that is known from the start; what
ends together (a group of saves that share a commit) wakes each loop once, because
``loop.call_soon_threadsafe`` costs a system call each time.

A save must never be abandoned half-way: when ``CancelledError`` leaves it, the append is in
the log or never will be. ``asyncio.shield`` alone does not do that: the cancelled caller leaves
while the work goes on, and where it catches the cancellation to wait, a second one interrupts it.
"""

# answer_all gives the outcomes of many hand-offs at once: the two are one mechanism.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from agent_memory.errors import StorageError, StorageUnavailableError
from agent_memory.messages import ChatKey
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
        "_waker",
        "work",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waker = waker_of(self._loop)
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
        self._answered = True
        self._waker.put(self._loop, [self._arrive])

    def set_exception(self, error: BaseException) -> None:
        """Give the failure that :meth:`wait` raises."""
        self._error = error
        self._answered = True
        self._waker.put(self._loop, [self._arrive])

    async def wait(self) -> T:
        """Wait for the outcome, as :func:`run_uncancelled` does.

        A cancellation is raised when the work has ended: a thread cannot be called back.
        """
        cancellation: asyncio.CancelledError | None = None
        while not self._arrived:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancellation = error
        if cancellation is not None:
            raise cancellation
        if self._error is not None:
            try:
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
    waking: dict[asyncio.AbstractEventLoop, tuple[LoopWaker, list[Callable[[], Any]]]] = {}
    for handoff, outcome in answers:
        if isinstance(outcome, Exception):
            handoff._error = outcome
        else:
            handoff._result = outcome
        handoff._answered = True
        loop = handoff._loop
        if loop not in waking:
            waking[loop] = handoff._waker, []
        waking[loop][1].append(handoff._arrive)
    for loop, (waker, arrivals) in waking.items():
        waker.put(loop, arrivals)


def own_copy(error: BaseException) -> BaseException:
    """Return a copy of an error that several wait for: raising one adds to its traceback."""
    try:
        copied = copy.copy(error)
    except TypeError:  # its class wants other arguments
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
    await _outlast(task.done, lambda wake: task.add_done_callback(lambda _task: wake()), task)
    return task.result()


async def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for the result of work in another thread, as :func:`run_uncancelled` does.

    Unlike ``asyncio.wrap_future`` it never cancels that work: ``asyncio.run`` cancels every
    task when it ends, also those inside :func:`run_uncancelled`, and a thread cannot be called
    back.
    """
    loop = asyncio.get_running_loop()
    waker = waker_of(loop)

    def subscribe(wake: Callable[[], None]) -> None:
        future.add_done_callback(lambda _future: waker.put(loop, [wake]))

    await _outlast(future.done, subscribe, future)
    return future.result()


async def decode(function: Callable[[], T], count: int) -> T:
    """Call a function that decodes `count` entries; in a thread if they are many.

    The loop that it would hold up is the caller's, and serves others too.
    """
    return function() if count <= _DECODED_AT_ONCE else await asyncio.to_thread(function)


async def _outlast(
    done: Callable[[], bool],
    subscribe: Callable[[Callable[[], None]], None],
    outcome: asyncio.Task[Any] | concurrent.futures.Future[Any],
) -> None:
    loop = asyncio.get_running_loop()
    cancellation: asyncio.CancelledError | None = None
    while not done():
        waiter: asyncio.Future[None] = loop.create_future()
        subscribe(partial(_wake, waiter))
        try:
            await waiter
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not outcome.cancelled():
            outcome.exception()  # otherwise asyncio reports it as never retrieved
        raise cancellation


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


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
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its tasks are gone
            loop.call_soon_threadsafe(self._call_all, loop)

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
