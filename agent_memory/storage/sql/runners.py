"""How the store's functions get to a thread or loop, a session and an engine."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only

from agent_memory.errors import StorageClosedError
from agent_memory.messages import ChatKey
from agent_memory.records import LogSlice
from agent_memory.storage._engine.handoff import Handoff, result_of
from agent_memory.storage.sql.appends import Appender, PendingAppend
from agent_memory.storage.sql.engines import EngineOptions, make_async_engine, make_sqlite_engine
from agent_memory.storage.sql.entries import Append
from agent_memory.storage.sql.loops import CallersLoop, PrivateLoop
from agent_memory.storage.sql.session import Session
from agent_memory.storage.sql.sqlite import DatabaseFile, DriverSession
from agent_memory.storage.sql.statements import Executor, Row
from agent_memory.storage.sql.threads import Worker
from agent_memory.storage.sql.urls import Target

T = TypeVar("T")

_NAME = "agent-memory-sql"
_DECODED_AT_ONCE: Final = 200  # rows in a caller's loop: about a millisecond


class Runner(ABC):
    """Runs functions of a ``Connection`` for one store, from any loop or thread.

    Waiting outlasts cancellation: what has been handed over is done when the wait ends.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def write(
        self,
        work: Callable[[Executor], T],
        *,
        key: ChatKey | None = None,
        repeatable: bool = False,
        erases: bool = False,
    ) -> T:
        """Run `work` in a transaction; see :meth:`Session.transact`."""
        transacting = self._submit(
            lambda session: session.transact(work, repeatable=repeatable, erases=erases), key
        )
        return await transacting.wait()

    async def write_core(self, work: Callable[[Connection], T], *, repeatable: bool = False) -> T:
        """Run `work` in a transaction; see :meth:`Session.transact_core`."""
        return await self._submit(
            lambda session: session.transact_core(work, repeatable=repeatable), None
        ).wait()

    async def read_core(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads; see :meth:`Session.read_core`."""
        return await self._submit(lambda session: session.read_core(work), None).wait()

    async def read(self, work: Callable[[Executor], T], *, key: ChatKey | None = None) -> T:
        """Run `work`, which only reads; see :meth:`Session.read`."""
        return await self._submit_read(work, key).wait()

    async def read_entries(
        self,
        work: Callable[[Executor], Sequence[Row]],
        decode: Callable[[Sequence[Row]], T],
        *,
        key: ChatKey | None = None,
    ) -> T:
        """Run `work`, which reads rows of entries, and decode them where no caller waits."""
        return await self.read(lambda connection: decode(work(connection)), key=key)

    async def read_small(self, work: Callable[[Executor], T]) -> T | None:
        """Run `work`, which reads little, where that is quicker; None where it is not."""
        return None

    async def append(self, appender: Appender, append: Append) -> LogSlice:
        """Store an append, with others that wait at the same moment."""
        pending = PendingAppend(append, appender)
        self._append(pending)
        return await pending.reply.wait()

    async def erase(self) -> None:
        """Erase from SQLite's log what was deleted; other engines have no such log."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is waiting; then close what was opened."""

    @abstractmethod
    def abandon(self) -> None:
        """Do the same in the background, for a store that nobody closed."""

    @abstractmethod
    def _submit(self, work: Callable[[Session], T], key: ChatKey | None) -> Handoff[T]: ...

    @abstractmethod
    def _submit_read(self, work: Callable[[Executor], T], key: ChatKey | None) -> Handoff[T]: ...

    @abstractmethod
    def _append(self, pending: PendingAppend) -> None: ...


class ThreadRunner(Runner):
    """For engines that block: a thread that writes, and one that reads meanwhile.

    Args:
        engine: where connections come from.
        own: whether it is ours: transactions begin with ``BEGIN IMMEDIATE``, each thread keeps
            its connection, and the engine is disposed of at the end.
        patience: seconds after which there is no further attempt.
        one_thread: for a database in memory, which lives in one connection.
        file: the SQLite file, if the engine is ours and opens one.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        own: bool,
        one_thread: bool,
        patience: float,
        file: DatabaseFile | None,
    ) -> None:
        super().__init__(engine)
        session = partial(self._session, engine, own=own, patience=patience, file=file)
        writing, reading = session(begin="BEGIN IMMEDIATE"), session(begin="BEGIN")
        self._writer = Worker(writing, f"{_NAME}-writer")
        self._reader = self._writer if one_thread else Worker(reading, f"{_NAME}-reader")
        self._own = own
        if isinstance(writing, DriverSession) and isinstance(reading, DriverSession):
            writing.close_other = None if one_thread else self._reader.close_connection
            reading.close_other = self._writer.close_connection

    @staticmethod
    def _session(
        engine: Engine, *, own: bool, patience: float, begin: str, file: DatabaseFile | None
    ) -> Session:
        if own:
            return DriverSession(engine, begin=begin, patience=patience, file=file)
        # SQLite's own waiting for a lock takes the place of further attempts.
        attempts = 1 if engine.dialect.name == "sqlite" else 4
        autocommit = _autocommitting(engine)
        return Session(
            engine, time.sleep, autocommit=autocommit, attempts=attempts, patience=patience
        )

    def _submit(self, work: Callable[[Session], T], key: ChatKey | None) -> Handoff[T]:
        return self._writer.submit(work, key)

    def _submit_read(self, work: Callable[[Executor], T], key: ChatKey | None) -> Handoff[T]:
        return self._reader.submit(lambda session: session.read(work), key)

    async def read_small(self, work: Callable[[Executor], T]) -> T | None:
        """Run `work` in the writer's thread if that is idle.

        Each commit empties the page cache of the other connection, but not of its own.
        """
        if not self._writer.is_idle:
            return None
        return await self._writer.submit(lambda session: session.read(work)).wait()

    async def erase(self) -> None:
        """Erase what was deleted, with what others deleted meanwhile.

        The first of several that ask at the same moment does it for all: its turn comes after
        the deletions that were waiting already, and the others find nothing to do.
        """
        if self._writer.is_erasing:
            with suppress(StorageClosedError):  # then it is done at the end
                await self._writer.submit(lambda session: session.erase_from_log()).wait()

    def _append(self, pending: PendingAppend) -> None:
        self._writer.append(pending)

    async def close(self) -> None:
        """Finish what is waiting; then end the threads and close an engine of our own."""
        # The one after the other: SQLite moves its log (WAL) into the database when the last
        # connection is closed, and of two that are closed at once neither is the last.
        for worker in (self._reader, self._writer):
            await result_of(worker.stop())
        if self._own:
            self.engine.dispose()

    def abandon(self) -> None:
        """Let the threads end, the one after the other; each closes its connection."""
        self._reader.stop().add_done_callback(lambda _stopped: self._writer.stop())


def _sleep_in_greenlet(seconds: float) -> None:
    await_only(asyncio.sleep(seconds))


def _autocommitting(engine: Engine) -> Engine:
    # Without BEGIN and COMMIT, a statement to PostgreSQL is one round trip instead of three; on
    # MySQL switching autocommit on would be a round trip of its own.
    if engine.dialect.name != "postgresql":
        return engine
    return engine.execution_options(isolation_level="AUTOCOMMIT")


class LoopRunner(Runner):
    """For an async engine of our own: a private thread with one event loop.

    Args:
        engine: as :func:`make_async_engine` makes it: on PostgreSQL in autocommit mode.
        isolation: of transactions, where the engine's is none.
        patience: seconds after which there is no further attempt.
    """

    def __init__(self, engine: AsyncEngine, isolation: str | None, patience: float) -> None:
        super().__init__(engine.sync_engine)
        self._dispose = engine.dispose
        base = transacting = engine.sync_engine
        if isolation is not None:
            transacting = base.execution_options(isolation_level=isolation)
        session = Session(transacting, _sleep_in_greenlet, autocommit=base, patience=patience)
        self._loop = PrivateLoop(session, _NAME)

    def _submit(self, work: Callable[[Session], T], key: ChatKey | None) -> Handoff[T]:
        return self._loop.submit(work, key)

    def _submit_read(self, work: Callable[[Executor], T], key: ChatKey | None) -> Handoff[T]:
        return self._loop.submit(lambda session: session.read(work), key)

    def _append(self, pending: PendingAppend) -> None:
        self._loop.append(pending)

    async def close(self) -> None:
        """Finish what is waiting; then close the engine and end the thread."""
        await result_of(self._loop.stop(self._dispose))

    def abandon(self) -> None:
        """Do the same without waiting."""
        self._loop.stop(self._dispose)


class CallersLoopRunner(Runner):
    """For a caller's async engine: tasks on the loop that first uses it."""

    def __init__(self, engine: AsyncEngine, patience: float) -> None:
        super().__init__(engine.sync_engine)
        base = engine.sync_engine
        autocommit = _autocommitting(base)
        self._loop = CallersLoop(
            Session(base, _sleep_in_greenlet, autocommit=autocommit, patience=patience)
        )

    def _submit(self, work: Callable[[Session], T], key: ChatKey | None) -> Handoff[T]:
        return self._loop.submit(work, key)

    def _submit_read(self, work: Callable[[Executor], T], key: ChatKey | None) -> Handoff[T]:
        return self._loop.submit(lambda session: session.read(work), key)

    def _append(self, pending: PendingAppend) -> None:
        self._loop.append(pending)

    async def read_entries(
        self,
        work: Callable[[Executor], Sequence[Row]],
        decode: Callable[[Sequence[Row]], T],
        *,
        key: ChatKey | None = None,
    ) -> T:
        """Run `work`, and decode more than a few rows in a thread: the loop is the caller's."""
        rows = await self.read(work, key=key)
        if len(rows) <= _DECODED_AT_ONCE:
            return decode(rows)
        return await asyncio.to_thread(decode, rows)

    async def close(self) -> None:
        """Finish what is waiting; the engine is the caller's."""
        await self._loop.drained()

    def abandon(self) -> None:
        """Nothing is ours to close."""


def make_runner(target: Target, options: EngineOptions) -> Runner:
    """Return the runner for a target; called in the loop that uses the store first."""
    patience = options.timeout
    if isinstance(target.engine, AsyncEngine):
        return CallersLoopRunner(target.engine, patience)
    if target.engine is not None or target.family == "sqlite":
        own = target.engine is None
        engine, file = target.engine, None
        if engine is None:
            engine, file = make_sqlite_engine(target, options)
        return ThreadRunner(
            engine, own=own, one_thread=target.in_memory, patience=patience, file=file
        )
    made, isolation = make_async_engine(target, options)
    return LoopRunner(made, isolation, patience)
