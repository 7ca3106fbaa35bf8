"""Waiting that a cancellation cannot cut short.

A save must never be abandoned half-way: when ``CancelledError`` leaves it, the append is in
the log or never will be. ``asyncio.shield`` alone does not do that: the caller leaves while
the work goes on, and a second cancellation arrives before anybody waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from agent_memory.storage.wakes import wakes_of

T = TypeVar("T")


async def settle(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, whatever happens to the caller meanwhile, and return its result.

    A cancellation of the caller is remembered and raised when the work has ended, so that
    nothing is in flight once this has left. The work itself must be bounded in time.
    """
    task = asyncio.ensure_future(work)
    await _outlast(task.done, lambda wake: task.add_done_callback(lambda _task: wake()), task)
    return task.result()


async def result_of(future: concurrent.futures.Future[T]) -> T:
    """Wait for the result of work in another thread, as :func:`settle` does.

    Unlike ``asyncio.wrap_future`` it never cancels that work: ``asyncio.run`` cancels every
    task when it ends, also those inside :func:`settle`, and a thread cannot be called back.
    """
    loop = asyncio.get_running_loop()
    wakes = wakes_of(loop)

    def subscribe(wake: Callable[[], None]) -> None:
        future.add_done_callback(lambda _future: wakes.put(loop, [wake]))

    await _outlast(future.done, subscribe, future)
    return future.result()


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
            outcome.exception()  # else asyncio reports it as never retrieved
        raise cancellation


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
