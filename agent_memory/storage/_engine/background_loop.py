"""Event loops to do a store's work on: a thread with a loop of its own, or the caller's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from agent_memory.errors import (
    InvalidRequestError,
    StorageClosedError,
    StorageUnavailableError,
)
from agent_memory.storage._engine.handoff import (
    Handoff,
    error_for_waiter,
    loop_ending,
    run_uncancelled,
)

T = TypeVar("T")

_JOIN_SECONDS: Final = 5.0


class BackgroundLoop:
    """A daemon thread that runs an event loop for callers in any thread or loop.

    Neither the thread nor its loop refers to its owner, so that a forgotten owner can be
    collected, and a daemon thread never keeps the process alive.

    Args:
        name: the thread's name.

    Attributes:
        loop: the event loop.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopping = False
        self._end: asyncio.Future[None] = self.loop.create_future()
        self._stopped = Future[None]()
        arguments = self.loop, self._end, self._stopped
        self._thread = threading.Thread(target=_serve, args=arguments, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.loop.close()
            raise StorageUnavailableError(f"no thread can be started: {error}") from error

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this very thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop.

        Raises:
            StorageClosedError: the loop is stopping.
        """
        # Under the lock: what is queued after the loop's last step would never run.
        with self._lock:
            if self._is_stopping:
                work.close()
                raise StorageClosedError("the store is closed")
            return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop to its end, also when the caller is cancelled.

        Raises:
            StorageClosedError: the loop is stopping.
        """
        # Not submit(): a concurrent Future takes as long to make as a small read.
        handoff: Handoff[T] = Handoff()
        try:
            self.call_soon(_run, self.loop, work, handoff)
        except StorageClosedError:
            work.close()
            raise
        return await handoff.wait()

    def check(self) -> asyncio.AbstractEventLoop:
        """Return the loop; see :meth:`CallersLoop.check`."""
        return self.loop

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop.

        Raises:
            StorageClosedError: the loop is stopping.
        """
        with self._lock:
            if self._is_stopping:
                raise StorageClosedError("the store is closed")
            self.loop.call_soon_threadsafe(function, *arguments)

    def drain_and_stop(self, finish: Callable[[], Awaitable[object]]) -> Future[None]:
        """Wait for all tasks of the loop, run `finish`, and end the thread; twice is fine.

        Returns:
            A future that is done when the thread has ended; it fails if `finish` did.
        """
        with self._lock:
            if not self._is_stopping:
                self._is_stopping = True
                asyncio.run_coroutine_threadsafe(_drain(finish, self._end), self.loop)
        return self._stopped

    def stop(self) -> None:
        """Cancel what is left, end the loop and wait for the thread."""
        self.abandon()
        if not self.is_current:
            self._thread.join(_JOIN_SECONDS)

    def abandon(self) -> None:
        """Do what :meth:`stop` does without waiting: the owner is being collected."""
        with self._lock:
            if not self._is_stopping:
                self._is_stopping = True
                self.loop.call_soon_threadsafe(self._end.set_result, None)


def _serve(
    loop: asyncio.AbstractEventLoop, end: asyncio.Future[None], stopped: Future[None]
) -> None:
    """Run a loop until `end` is done; all that its thread knows of a :class:`BackgroundLoop`."""
    asyncio.set_event_loop(loop)
    try:
        # When it is closed, a runner cancels what is left and closes the loop.
        with asyncio.Runner(loop_factory=lambda: loop):
            while not end.done():
                # asyncio lets SystemExit and KeyboardInterrupt of one task end the loop's run.
                # That task has failed, and its waiter gets an error; the other tasks must go on.
                with contextlib.suppress(BaseException):
                    loop.run_until_complete(end)
    finally:
        error = end.exception()
        if error is None:
            stopped.set_result(None)
        else:
            stopped.set_exception(error)


def _run(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], handoff: Handoff[T]
) -> None:
    task = loop.create_task(work)
    task.add_done_callback(partial(_hand_over, handoff))
    handoff.work = task  # asyncio itself holds tasks weakly


def _hand_over(handoff: Handoff[T], task: asyncio.Task[T]) -> None:
    handoff.work = None
    if task.cancelled():
        handoff.set_exception(loop_ending(has_begun=True))
    elif (error := task.exception()) is not None:
        handoff.set_exception(error_for_waiter(error, None))
    else:
        handoff.set_result(task.result())


async def _drain(finish: Callable[[], Awaitable[object]], end: asyncio.Future[None]) -> None:
    mine = asyncio.current_task()
    try:
        while others := asyncio.all_tasks() - {mine}:
            await asyncio.wait(others)
        await finish()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the thread raises it
        end.set_exception(error)
        if isinstance(error, SystemExit | KeyboardInterrupt):
            # asyncio takes it that such an error has ended the loop's run by itself.
            asyncio.get_running_loop().stop()
    else:
        end.set_result(None)


class CallersLoop:
    """The event loop that first uses what a caller passed in, and no other.

    A caller's client or engine has connections that belong to one loop.

    Args:
        refusal: the text of the error for any other loop.
    """

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this loop."""
        return self._loop is asyncio.get_running_loop()

    def check(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which becomes the only one at the first call.

        Raises:
            InvalidRequestError: another loop came first.
        """
        running = asyncio.get_running_loop()
        with self._lock:
            self._loop = self._loop or running
        if self._loop is not running:
            raise InvalidRequestError(self._refusal)
        return running

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in this loop, also when the caller is cancelled.

        Raises:
            InvalidRequestError: another loop came first.
        """
        try:
            self.check()
        except InvalidRequestError:
            work.close()
            raise
        return await run_uncancelled(work)
