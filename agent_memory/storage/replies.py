"""What a thread answers to the one task that waits for it.

``concurrent.futures.Future`` serves any number of waiters in any thread, with a condition of its
own for each piece of work. A save has one waiter, in a loop that is known from the start; what
ends together (a group of saves that share a commit) wakes each loop once.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from agent_memory.storage.wakes import Wakes, wakes_of

T = TypeVar("T")


class Reply(Generic[T]):
    """The outcome of work in another thread; made, and waited for, in one task.

    Any thread may give the outcome, once: with :meth:`set_result` or :meth:`set_exception`, or
    with others' by :func:`answer_all`.
    """

    __slots__ = ("_answered", "_arrived", "_error", "_loop", "_result", "_waiter", "_wakes")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wakes = wakes_of(self._loop)
        self._waiter: asyncio.Future[None] | None = None
        self._answered = False
        self._arrived = False  # the loop's thread alone reads and writes it
        self._result: T | None = None
        self._error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the outcome has been given."""
        return self._answered

    def set_result(self, result: T) -> None:
        """Give the outcome."""
        self._result = result
        self._answered = True
        self._wakes.put(self._loop, [self._arrive])

    def set_exception(self, error: BaseException) -> None:
        """Give the failure that :meth:`settled` raises."""
        self._error = error
        self._answered = True
        self._wakes.put(self._loop, [self._arrive])

    async def settled(self) -> T:
        """Wait for the outcome, as :func:`agent_memory.storage.settling.settle` does.

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
                self._error = None  # else it and this frame would hold each other
        return cast("T", self._result)

    def _arrive(self) -> None:
        self._arrived = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def answer_all(answers: Iterable[tuple[Reply[T], T | Exception]]) -> None:
    """Give several outcomes, and wake each loop that waits for some of them once.

    An outcome that is an exception is raised where its reply is waited for.
    """
    waking: dict[asyncio.AbstractEventLoop, tuple[Wakes, list[Callable[[], Any]]]] = {}
    for reply, outcome in answers:
        if isinstance(outcome, Exception):
            reply._error = outcome
        else:
            reply._result = outcome
        reply._answered = True
        loop = reply._loop
        if loop not in waking:
            waking[loop] = reply._wakes, []
        waking[loop][1].append(reply._arrive)
    for loop, (wakes, arrivals) in waking.items():
        wakes.put(loop, arrivals)


def own_copy(error: BaseException) -> BaseException:
    """Return a copy of an error that several wait for: raising one adds to its traceback."""
    try:
        copied = copy.copy(error)
    except TypeError:  # its class wants other arguments
        return error
    copied.__cause__ = error.__cause__
    return copied
