"""Where a store's requests run: on a thread of its own, or on the caller's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from agent_memory.errors import InvalidRequestError, StorageClosedError
from agent_memory.storage._engine.background_loop import BackgroundLoop
from agent_memory.storage._engine.handoff import result_of, run_uncancelled

T = TypeVar("T")


class OwnLoop:
    """A private daemon thread with one loop, for stores that are called from many loops.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._thread = BackgroundLoop(name)
        self._lock = threading.Lock()
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether it has been told to stop."""
        return self._stopping

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop; wait for its end also when the caller is cancelled.

        Raises:
            StorageClosedError: it has been told to stop.
        """
        with self._lock:
            if self._stopping:
                work.close()
                raise StorageClosedError("DynamoDbChatStorage is closed")
            future = self._thread.submit(work)
        return await result_of(future)

    async def stop(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Wait for what is running, run `finish`, and end the thread. Twice is fine."""
        if self._begin_stop():
            try:
                await result_of(self._thread.submit(_drain(finish)))
            finally:
                self._thread.stop()

    def abandon(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Do the same without waiting: the owner is being collected."""
        if self._begin_stop():
            self._thread.submit(_drain_and_end(finish, self._thread))

    def _begin_stop(self) -> bool:
        with self._lock:
            stopped_before, self._stopping = self._stopping, True
        return not stopped_before


class CallersLoop:
    """The loop that first uses a client which the caller passed in, and no other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the running loop.

        Raises:
            InvalidRequestError: the client belongs to another loop.
        """
        running = asyncio.get_running_loop()
        with self._lock:
            self._loop = self._loop or running
        if self._loop is not running:
            work.close()
            raise InvalidRequestError(
                "the client that was passed in serves the event loop that first used it; pass "
                "session= instead of client= to use a DynamoDbChatStorage from several loops"
            )
        return await run_uncancelled(work)

    async def stop(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Run `finish`; the loop is the caller's and goes on."""
        await finish()


async def _drain(finish: Callable[[], Awaitable[None]]) -> None:
    mine = asyncio.current_task()
    while others := asyncio.all_tasks() - {mine}:
        await asyncio.wait(others)
    await finish()


async def _drain_and_end(finish: Callable[[], Awaitable[None]], thread: BackgroundLoop) -> None:
    try:
        await _drain(finish)
    finally:
        thread.abandon()
