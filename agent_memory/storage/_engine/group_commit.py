"""Group commit: saves that wait at the same moment are committed together.

While one group is being committed, further saves gather and form the next. An idle store adds
no delay: the first save starts at once. A backend supplies ``commit(saves)``, which runs in
threads or as tasks of an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast

from agent_memory.errors import StorageUnavailableError
from agent_memory.keys import ChatKey
from agent_memory.storage._engine.append_plan import Outcome, PendingSave
from agent_memory.storage._engine.commit_queue import (
    Batch,
    Bounds,
    Call,
    CommitQueue,
    FutureHandoff,
)
from agent_memory.storage._engine.handoff import loop_ending, waker_of

E = TypeVar("E")
T = TypeVar("T")

_BOUNDS: Final = Bounds()
_MOST_BLOCKED: Final = 64  # threads more than asked for, while others wait in `blocking()`


class ThreadGroupCommit(CommitQueue[E]):
    """Commits groups in daemon threads, which start when there is work.

    The threads know this object, not the store: a store that is forgotten can be collected.

    Args:
        commit: stores the saves of a group and returns the outcome of each, in order; what it
            raises is raised by all of them. By chat, the saves are of one chat.
        name: of the threads.
        threads: how many there may be. By store there is one: it alone may keep a connection.
        idle: called in a thread that has nothing to do; it returns the seconds after which it
            wants to be called again, or None.
        finish: called in the last thread once the queue is closed and empty, and in one that
            something killed: to close what a thread keeps.
    """

    def __init__(
        self,
        commit: Callable[[list[PendingSave[E]]], Sequence[Outcome]],
        *,
        name: str,
        by: Literal["store", "chat"],
        threads: int = 1,
        bounds: Bounds = _BOUNDS,
        error_for: Callable[[BaseException, ChatKey | None], BaseException] | None = None,
        idle: Callable[[], float | None] | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        # The threads are the limit: each has one batch at a time.
        super().__init__(by=by, max_in_flight=None, bounds=bounds, error_for=error_for)
        self._commit = commit
        self._name = name
        self._threads = threads
        self._idle = idle
        self._finish = finish
        self._workers = self._blocked = 0
        # At least one item for each lane that is ready; who gets one too many finds nothing to do.
        # A SimpleQueue wakes a thread in about a third of the time that a Condition takes.
        self._alarm: queue.SimpleQueue[None] = queue.SimpleQueue()

    async def call(self, function: Callable[[], T], key: ChatKey | None = None) -> T:
        """Call a function in a thread, in its turn among the saves, of the chat or the store.

        Raises:
            StorageClosedError: the queue is closed.
        """
        return cast("T", await self._call(function, key))

    def post(self, function: Callable[[], T], key: ChatKey | None = None) -> Future[T]:
        """Do what :meth:`call` does, for a caller without an event loop: another queue's thread.

        Raises:
            StorageClosedError: the queue is closed.
        """
        future: FutureHandoff[T] = FutureHandoff()
        self._put(future, Call(key, function))
        return future

    @contextlib.contextmanager
    def blocking(self) -> Generator[None]:
        """Let another thread stand in while this one waits for something outside the process.

        Otherwise a few chats that other processes have locked would hold up all other chats.
        """
        with self._lock:
            self._blocked += 1
            self._start_worker_if_needed()
        try:
            yield
        finally:
            with self._lock:
                self._blocked -= 1

    def _limit(self) -> int:
        return self._threads + min(self._blocked, _MOST_BLOCKED)

    def _wake_driver(self) -> None:
        self._start_worker_if_needed()
        self._alarm.put(None)

    def _start_worker_if_needed(self) -> None:
        """Start a thread if work is ready and no thread is free; the lock is held."""
        free = self._workers - self._in_flight
        if free >= len(self._ready) or self._workers >= self._limit():
            return
        try:
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        except RuntimeError as error:
            if self._workers == 0:
                raise StorageUnavailableError(
                    f"no thread can be started to save: {error}; nothing was stored", stored=False
                ) from error
            return  # the threads that run will take it
        self._workers += 1

    def _report_drained(self) -> None:
        for _ in range(self._workers):
            self._alarm.put(None)  # they find nothing to do, and leave
        # Without a thread there is nothing to finish: none was needed, or it did so when it was
        # killed. One must not be started here: when the interpreter ends, that would not return.
        if self._workers == 0:
            self._drained.set_result(None)

    # --------------------------------------------------------------------- in a worker thread

    def _serve(self) -> None:
        has_left = False
        while not has_left:
            try:
                self._serve_once()
            except BaseException:
                self._leave(killed=True)
                raise
            has_left = self._leave(killed=False)

    def _serve_once(self) -> None:
        """Wait for a lane that is ready, and do one batch.

        A function of its own, so that no local variable keeps a large result alive while idle.
        """
        timeout = None
        if self._idle is not None and self._alarm.empty():
            timeout = self._idle()
        try:
            self._alarm.get(timeout=timeout)
        except queue.Empty:
            return
        batch = None
        try:
            with self._lock:
                batch = self._take()
            if batch is not None:
                self._do(batch)
        except BaseException as error:
            if batch is not None:
                self._release_lane(batch)
                self._fail(batch.waiting, error)
            raise

    def _do(self, batch: Batch) -> None:
        call = batch.call
        try:
            outcomes = self._commit(batch.saves) if call is None else [call.function()]
            batch.check(outcomes)
        except Exception as error:  # noqa: BLE001 - each waiter raises it
            self._release_lane(batch)
            self._fail(batch.waiting, error)
            return
        self._release_lane(batch)
        self._answer(batch, outcomes)

    def _leave(self, *, killed: bool) -> bool:
        """Count this thread out if it was killed, or is not needed; return whether it was."""
        with self._lock:
            is_needed = self._workers <= self._limit() and not (self._is_closed and self.is_idle)
            if is_needed and not killed:
                return False
            self._workers -= 1
            if killed and self._ready:
                self._alarm.put(None)  # it may have got an item whose lane it did not take
                self._replace_worker()
            is_last = self._is_closed and self.is_idle and self._workers == 0
        try:
            if (killed or is_last) and self._finish is not None:
                self._finish()
        finally:
            if is_last:
                self._drained.set_result(None)
        return True

    def _replace_worker(self) -> None:
        """Start another thread for what waits, or fail it; the lock is held."""
        try:
            self._start_worker_if_needed()
        except StorageUnavailableError as error:
            # No thread is left and none can be started; nothing is in flight.
            orphans = [waiting for lane in self._lanes.values() for waiting in lane]
            self._lanes.clear()
            self._ready.clear()
            self._fail(orphans, error)


class LoopGroupCommit(CommitQueue[E]):
    """Commits groups as tasks of one event loop; saves come from any loop and thread.

    Args:
        commit: as that of :class:`ThreadGroupCommit`, but awaited.
        loop: where the tasks run.
        max_in_flight: how many groups are in flight at a time; None for no limit.
    """

    def __init__(
        self,
        commit: Callable[[list[PendingSave[E]]], Coroutine[Any, Any, Sequence[Outcome]]],
        loop: asyncio.AbstractEventLoop,
        *,
        by: Literal["store", "chat"],
        max_in_flight: int | None,
        bounds: Bounds = _BOUNDS,
        error_for: Callable[[BaseException, ChatKey | None], BaseException] | None = None,
    ) -> None:
        super().__init__(by=by, max_in_flight=max_in_flight, bounds=bounds, error_for=error_for)
        self._commit = commit
        self._loop = loop
        self._is_pump_due = False
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself holds tasks weakly

    async def call(
        self, function: Callable[[], Coroutine[Any, Any, T]], key: ChatKey | None = None
    ) -> T:
        """Await a function in the loop, in its turn among the saves, of the chat or the store.

        Raises:
            StorageClosedError: the queue is closed.
        """
        return cast("T", await self._call(function, key))

    def _wake_driver(self) -> None:
        if self._is_pump_due:
            return
        self._is_pump_due = True
        if asyncio.get_running_loop() is self._loop:
            self._loop.call_soon(self._pump)  # soon: what other tasks save now joins the group
        else:
            waker_of(self._loop).put(self._loop, [self._pump])

    def _pump(self) -> None:
        while True:
            with self._lock:
                self._is_pump_due = False
                batch = self._take()
            if batch is None:
                return
            task = self._loop.create_task(self._do(batch))
            self._tasks.add(task)
            task.add_done_callback(partial(self._done, batch))

    async def _do(self, batch: Batch) -> None:
        batch.has_begun = True
        call = batch.call
        outcomes = await self._commit(batch.saves) if call is None else [await call.function()]
        batch.check(outcomes)
        self._release_lane(batch)
        self._answer(batch, outcomes)

    def _done(self, batch: Batch, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._release_lane(batch)
        if task.cancelled():
            # Not a waiter's own cancellation, which never gets here: the loop is ending.
            self._fail(batch.waiting, loop_ending(has_begun=batch.has_begun))
        elif (error := task.exception()) is not None:
            self._fail(batch.waiting, error)
        self._pump()
