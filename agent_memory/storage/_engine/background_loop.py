"""A daemon thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_JOIN_SECONDS: Final = 5.0


class LoopThread:
    """Runs coroutines for callers in any thread or loop.

    Neither the thread nor its loop refers to its owner, so that a forgotten owner can be
    collected, and a daemon thread never keeps the process alive.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this very thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` in the thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Cancel what is left, end the loop and wait for the thread."""
        self.abandon()
        if not self.is_current:
            self._thread.join(_JOIN_SECONDS)

    def abandon(self) -> None:
        """End the loop without waiting: the owner is being collected."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
