"""Running jobs on a store's own threads, for engines that block."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import attrs

from agent_memory.errors import StorageClosedError
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.handoff import Handoff
from agent_memory.storage.sql import sqlite
from agent_memory.storage.sql.appends import MAX_ROWS, PendingAppend, commit_all
from agent_memory.storage.sql.jobs import Job
from agent_memory.storage.sql.session import Session

T = TypeVar("T")


class Worker:
    """A daemon thread that takes jobs in order; appends that wait together form a group.

    The thread knows the queue and the session, not the store: a store that is forgotten can be
    collected.
    """

    def __init__(self, session: Session, name: str) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._session = session
        self._lock = threading.Lock()
        self._stopped = Future[None]()
        self._stopping = False
        self._state = _State()
        arguments = self._queue, session, self._stopped, self._state
        thread = threading.Thread(target=_serve, args=arguments, name=name, daemon=True)
        thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether it had nothing to do a moment ago."""
        return self._state.taken == self._state.done

    @property
    def is_erasing(self) -> bool:
        """Whether text that its jobs deleted is still in SQLite's log."""
        return self._session.is_erasing

    def submit(self, work: Callable[[Session], T], key: ChatKey | None = None) -> Handoff[T]:
        """Let the thread run `work`.

        Raises:
            StorageClosedError: the worker has been told to stop.
        """
        job = Job(work, key)
        self._put(job)
        return job.reply

    def append(self, pending: PendingAppend) -> None:
        """Let the thread store an append with others that wait.

        Raises:
            StorageClosedError: the worker has been told to stop.
        """
        self._put(pending)

    def close_connection(self) -> Future[None]:
        """Have the connection closed that the thread keeps; the next job opens one anew."""
        closing = _Closing()
        with suppress(StorageClosedError):  # then it is closed in any case
            self._put(closing)
        return closing.closed

    def stop(self) -> Future[None]:
        """Let the thread end once all that waits is done; the future tells when it has."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._queue.put(None)
        return self._stopped

    def _put(self, job: Any) -> None:
        with self._lock:  # so that nothing is queued behind the end
            if self._stopping:
                raise StorageClosedError("the store is closed")
            self._state.taken += 1
            self._queue.put(job)


@attrs.frozen(eq=False)
class _Closing:
    closed: Future[None] = attrs.field(factory=Future[None])

    def run(self, session: Session) -> None:
        session.close()
        self.closed.set_result(None)


class _State:
    """How many jobs a worker was given, and how many its thread, which counts them, has done."""

    taken = done = 0


def _serve(
    jobs: queue.SimpleQueue[Any], session: Session, stopped: Future[None], state: _State
) -> None:
    try:
        while _serve_waiting(jobs, session, state):
            pass
    finally:
        session.close()
        stopped.set_result(None)


def _serve_waiting(jobs: queue.SimpleQueue[Any], session: Session, state: _State) -> bool:
    """Do all that waits now; return whether to go on.

    A function of its own, so that no local variable keeps a large result alive while idle.
    """
    appends: list[PendingAppend] = []
    try:
        job = jobs.get(timeout=sqlite.ERASING_EVERY if session.is_erasing else None)
    except queue.Empty:
        session.erase_from_log(wait=0)
        return True
    count = 1
    while True:
        if isinstance(job, PendingAppend) and len(appends) < MAX_ROWS:
            appends.append(job)
        else:
            commit_all(appends, session)
            appends = []
            if job is None:
                session.erase_from_log(wait=0)  # closing does not, if other processes go on
                return False
            if isinstance(job, PendingAppend):
                appends.append(job)
            else:
                job.run(session)
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            commit_all(appends, session)
            state.done += count
            return True
        count += 1
