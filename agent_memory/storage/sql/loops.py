"""Running jobs on an event loop, for async engines."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy.util import greenlet_spawn

from agent_memory.errors import (
    InvalidRequestError,
    StorageClosedError,
    StorageUnavailableError,
)
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.handoff import Handoff
from agent_memory.storage.sql.appends import PendingAppend, groups
from agent_memory.storage.sql.jobs import Job
from agent_memory.storage.sql.session import Session

T = TypeVar("T")

GROUPS_AT_ONCE: Final = 2
"""How many groups of appends are in flight at once; what comes meanwhile forms the next ones.

Measured with 64 chats on PostgreSQL: more of them means smaller groups, and each group costs the
client more than the server. Without groups, ten connections stored an eighth as much.
"""


class LoopJobs:
    """Runs jobs as tasks of one event loop, each in a greenlet; see :class:`Session`.

    All methods but those that say so are to be called in that loop.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: deque[PendingAppend] = deque()
        self._active = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, job: Job[Any]) -> None:
        """Run a job at once."""
        task = self._spawn(job.run, self._session)
        task.add_done_callback(lambda _task: _answer_unbegun([(job.reply, job.key)]))

    def append(self, pending: PendingAppend) -> None:
        """Store an append, with others that wait if all groups are in flight."""
        self._waiting.append(pending)
        self._pump()

    async def drained(self) -> None:
        """Wait until nothing is waiting or in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _pump(self) -> None:
        while self._waiting and self._active < GROUPS_AT_ONCE:
            group = next(groups(self._waiting))
            for _ in group:
                self._waiting.popleft()
            self._active += 1
            task = self._spawn(group[0].appender.commit, self._session, group)
            task.add_done_callback(partial(self._group_done, group))

    def _group_done(self, group: Sequence[PendingAppend], _task: asyncio.Task[None]) -> None:
        _answer_unbegun([(pending.reply, pending.append.key) for pending in group])
        self._active -= 1
        self._pump()

    def _spawn(self, function: Callable[..., None], *arguments: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_in_greenlet(function, *arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _answer_unbegun(waiting: Iterable[tuple[Handoff[Any], ChatKey | None]]) -> None:
    """Tell those whose work was cancelled before its first step: the loop is ending."""
    for reply, key in waiting:
        if not reply.is_answered:
            ended = StorageUnavailableError(
                "the event loop that runs the database engine is ending; nothing was done",
                key=key,
                stored=False,
            )
            reply.set_exception(ended)


async def _in_greenlet(function: Callable[..., None], *arguments: Any) -> None:
    await greenlet_spawn(function, *arguments)


class PrivateLoop:
    """A daemon thread with an event loop that runs the jobs of one store.

    The thread knows nothing of the store: one that is forgotten can be collected.
    """

    def __init__(self, session: Session, name: str) -> None:
        self._jobs = LoopJobs(session)
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._stopping = False
        self._stopped = Future[None]()
        arguments = self._loop, self._stopped
        threading.Thread(target=_serve, args=arguments, name=name, daemon=True).start()

    def submit(self, work: Callable[[Session], T], key: ChatKey | None = None) -> Handoff[T]:
        """Run `work` on the loop; from any thread.

        Raises:
            StorageClosedError: the loop has been told to stop.
        """
        job = Job(work, key)
        self._call(self._jobs.run, job)
        return job.reply

    def append(self, pending: PendingAppend) -> None:
        """Store an append; from any thread.

        Raises:
            StorageClosedError: the loop has been told to stop.
        """
        self._call(self._jobs.append, pending)

    def stop(self, dispose: Callable[[], Any]) -> Future[None]:
        """Let the thread end once all that waits is done; from any thread.

        Args:
            dispose: returns what to await at the end, to close the engine.
        """
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._loop.call_soon_threadsafe(_begin_stop, self._loop, self._jobs, dispose)
        return self._stopped

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with self._lock:  # so that nothing is queued behind the end
            if self._stopping:
                raise StorageClosedError("the store is closed")
            self._loop.call_soon_threadsafe(function, *arguments)


def _serve(loop: asyncio.AbstractEventLoop, stopped: Future[None]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
        stopped.set_result(None)


def _begin_stop(
    loop: asyncio.AbstractEventLoop, jobs: LoopJobs, dispose: Callable[[], Any]
) -> None:
    task = loop.create_task(_finish(jobs, dispose))
    task.add_done_callback(lambda _task: loop.stop())


async def _finish(jobs: LoopJobs, dispose: Callable[[], Any]) -> None:
    await jobs.drained()
    await dispose()


class CallersLoop:
    """Runs the jobs of one store on the loop that uses it first.

    It is for a caller's async engine, whose connections belong to that loop.
    """

    def __init__(self, session: Session) -> None:
        self._jobs = LoopJobs(session)
        self._loop = asyncio.get_running_loop()

    def submit(self, work: Callable[[Session], T], key: ChatKey | None = None) -> Handoff[T]:
        """Run `work` on the loop.

        Raises:
            InvalidRequestError: the caller runs in another loop.
        """
        self._check_loop()
        job = Job(work, key)
        self._jobs.run(job)
        return job.reply

    def append(self, pending: PendingAppend) -> None:
        """Store an append.

        Raises:
            InvalidRequestError: the caller runs in another loop.
        """
        self._check_loop()
        self._jobs.append(pending)

    async def drained(self) -> None:
        """Wait until nothing is waiting or in flight, if this is the loop."""
        if asyncio.get_running_loop() is self._loop:
            await self._jobs.drained()

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidRequestError(
                "an AsyncEngine serves the event loop that first used it, and this is another "
                "one; give the store a URL instead of an engine, or make a store for each loop"
            )
