"""Running a store's functions: in which thread or loop, and on which :class:`Transactor`."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from agent_memory.errors import StorageClosedError
from agent_memory.log import Entry, LogSlice
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.append_plan import Outcome, PendingSave
from agent_memory.storage._engine.background_loop import BackgroundLoop, CallersLoop
from agent_memory.storage._engine.commit_queue import Bounds, CommitQueue
from agent_memory.storage._engine.group_commit import LoopGroupCommit, ThreadGroupCommit
from agent_memory.storage._engine.handoff import decode as decode_entries
from agent_memory.storage._engine.handoff import error_for_waiter, result_of
from agent_memory.storage.sql.appending import MAX_CHARACTERS, GroupAppender
from agent_memory.storage.sql.engines import EngineOptions, make_async_engine, make_sqlite_engine
from agent_memory.storage.sql.entries import EntryRow
from agent_memory.storage.sql.errors import TransactionFailedError
from agent_memory.storage.sql.sqlite import SqliteTransactor
from agent_memory.storage.sql.statements import AnyConnection, Row
from agent_memory.storage.sql.transactor import PooledTransactor, Transactor
from agent_memory.storage.sql.urls import Target

T = TypeVar("T")

_NAME: Final = "agent-memory-sql"
_BOUNDS: Final = Bounds(saves=1_000, entries=1_000, characters=MAX_CHARACTERS)

_GROUPS_IN_FLIGHT: Final = 2
"""How many groups of saves are in flight at once on a server, while the next one gathers.

Measured with 64 chats on PostgreSQL: more of them means smaller groups, and each group costs the
client more than the server. Without groups, ten connections stored an eighth as much.
"""

_OTHER_LOOP: Final = (
    "an AsyncEngine serves the event loop that first used it, and this is another one; give the "
    "store a URL instead of an engine, or make a store for each loop"
)


class SqlExecutor(ABC):
    """Runs functions of a connection for one store, from any loop or thread.

    Waiting is cancellation-safe: what has been handed over is done when the wait ends.

    Attributes:
        engine: where connections come from.
        appender: commits groups of saves; to be set once the dialect knows its server.
    """

    appender: GroupAppender
    _saves: CommitQueue[EntryRow]

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def append(
        self, key: ChatKey, entries: Sequence[Entry], rows: Sequence[EntryRow], size: int
    ) -> LogSlice:
        """Store entries, together with others that wait at the same moment."""
        return await self._saves.save(key, entries, rows, size)

    async def write(
        self,
        work: Callable[[AnyConnection], T],
        *,
        key: ChatKey | None = None,
        repeatable: bool = False,
        erases: bool = False,
    ) -> T:
        """Run `work` in a transaction; see :meth:`Transactor.transact`."""
        return await self.run(
            lambda transactor: transactor.transact(work, repeatable=repeatable, erases=erases), key
        )

    async def read(self, work: Callable[[AnyConnection], T], *, key: ChatKey | None = None) -> T:
        """Run `work`, which only reads; see :meth:`Transactor.read`."""
        return await self.run(lambda transactor: transactor.read(work), key)

    async def read_entries(
        self,
        work: Callable[[AnyConnection], Sequence[Row]],
        decode: Callable[[Sequence[Row]], T],
        *,
        key: ChatKey | None = None,
    ) -> T:
        """Run `work`, which reads rows of entries, and decode them where no caller waits."""
        return await self.read(lambda connection: decode(work(connection)), key=key)

    async def read_small(self, work: Callable[[AnyConnection], T]) -> T | None:
        """Run `work`, which reads little, where that is quicker; None where it is not."""
        return None

    async def erase(self) -> None:
        """Erase from SQLite's log what was deleted; other engines have no such log."""

    @abstractmethod
    async def run(self, work: Callable[[Transactor], T], key: ChatKey | None = None) -> T:
        """Run `work` with the transactor that writes; `key` is the chat concerned, for errors."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is waiting; then close what was opened."""

    @abstractmethod
    def abandon(self) -> None:
        """Do what :meth:`close` does in the background, for a store that was never closed."""


class ThreadExecutor(SqlExecutor):
    """For engines that block: one thread that writes and, beside it, one that reads.

    Both threads are queues of calls, each with a transactor; groups of saves go to the writer.

    Args:
        engine: where connections come from.
        writer: runs what writes.
        reader: runs what reads.
        one_thread: for a database in memory, which lives in one connection.
        own: whether the engine is ours, and to be disposed of at the end.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Transactor,
        reader: Transactor,
        *,
        one_thread: bool,
        own: bool,
    ) -> None:
        super().__init__(engine)
        self._own = own
        self._write_transactor = writer
        self._read_transactor = reader
        self._saves = self._write_thread = self._thread(writer, "writer")
        self._read_thread = self._write_thread if one_thread else self._thread(reader, "reader")
        self._close_together(writer, self._read_thread, reader)
        self._close_together(reader, self._write_thread, writer)

    def _thread(self, transactor: Transactor, name: str) -> ThreadGroupCommit[EntryRow]:
        return ThreadGroupCommit(
            lambda saves: self.appender.commit(transactor, saves),
            name=f"{_NAME}-{name}",
            by="store",
            bounds=_BOUNDS,
            error_for=_error_for,
            idle=transactor.idle,
            finish=transactor.finish,
        )

    @staticmethod
    def _close_together(
        transactor: Transactor, other_thread: ThreadGroupCommit[EntryRow], other: Transactor
    ) -> None:
        """Let a transactor that gives up a bad file have the other one close its connection."""

        def close_other() -> Future[None] | None:
            with suppress(StorageClosedError):  # then it is closed in any case
                return other_thread.post(other.close)
            return None

        if isinstance(transactor, SqliteTransactor):
            transactor.close_other = close_other

    async def run(self, work: Callable[[Transactor], T], key: ChatKey | None = None) -> T:
        """Run `work` in the writer's thread, in its turn among the saves."""
        return await self._write_thread.call(lambda: work(self._write_transactor), key)

    async def read(self, work: Callable[[AnyConnection], T], *, key: ChatKey | None = None) -> T:
        """Run `work`, which only reads, in the reader's thread."""
        return await self._read_thread.call(lambda: self._read_transactor.read(work), key)

    async def read_small(self, work: Callable[[AnyConnection], T]) -> T | None:
        """Run `work` in the writer's thread if that is idle.

        Each commit empties the page cache of the other connection, but not of its own.
        """
        if not self._write_thread.is_idle:
            return None
        return await self._write_thread.call(lambda: self._write_transactor.read(work))

    async def erase(self) -> None:
        """Erase what this call and others deleted.

        The first of several that ask at the same moment does it for all: its turn comes after
        the deletions that were waiting already, and the others find nothing to do.
        """
        if self._write_transactor.is_erasing:
            with suppress(StorageClosedError):  # then it is done at the end
                await self._write_thread.call(self._write_transactor.erase_from_log)

    async def close(self) -> None:
        """Finish what is waiting; then end the threads and close an engine of our own."""
        # One after the other: SQLite moves its log (WAL) into the database when the last
        # connection is closed, and of two that are closed at once neither is the last
        # (https://www.sqlite.org/wal.html).
        for thread in (self._read_thread, self._write_thread):
            await result_of(thread.close())
        if self._own:
            self.engine.dispose()

    def abandon(self) -> None:
        """Let the threads end, the one after the other; each closes its connection."""
        writer = self._write_thread
        self._read_thread.close().add_done_callback(lambda _closed: writer.close())


class LoopExecutor(SqlExecutor):
    """For async engines: tasks of one event loop, each in a greenlet.

    Args:
        engine: where connections come from; of our own, as :func:`make_async_engine` makes it.
        loop: a loop of our own, which closes the engine when it ends; or that of the caller, who
            made the engine.
        transactor: runs the functions.
    """

    def __init__(
        self, engine: AsyncEngine, loop: BackgroundLoop | CallersLoop, transactor: Transactor
    ) -> None:
        super().__init__(engine.sync_engine)
        self._dispose = engine.dispose
        self._loop = loop
        self._transactor = transactor
        self._saves = LoopGroupCommit(
            self._commit,
            loop.check(),
            by="store",
            max_in_flight=_GROUPS_IN_FLIGHT,
            bounds=_BOUNDS,
            error_for=_error_for,
        )

    async def _commit(self, saves: list[PendingSave[EntryRow]]) -> Sequence[Outcome]:
        return await greenlet_spawn(self.appender.commit, self._transactor, saves)

    async def append(
        self, key: ChatKey, entries: Sequence[Entry], rows: Sequence[EntryRow], size: int
    ) -> LogSlice:
        """Store entries, together with others that wait at the same moment."""
        self._loop.check()
        return await self._saves.save(key, entries, rows, size)

    async def run(self, work: Callable[[Transactor], T], key: ChatKey | None = None) -> T:
        """Run `work` at once, on a connection of its own."""
        try:
            return await self._loop.run(greenlet_spawn(work, self._transactor))
        except TransactionFailedError as error:
            raise error.translated(key) from error.error

    async def read_entries(
        self,
        work: Callable[[AnyConnection], Sequence[Row]],
        decode: Callable[[Sequence[Row]], T],
        *,
        key: ChatKey | None = None,
    ) -> T:
        """Run `work`; in a caller's loop, decode more than a few rows in a thread."""
        if isinstance(self._loop, BackgroundLoop):
            return await super().read_entries(work, decode, key=key)
        rows = await self.read(work, key=key)
        return await decode_entries(partial(decode, rows), len(rows))

    async def close(self) -> None:
        """Finish what is waiting; then close an engine of our own, and end its thread."""
        saved = self._saves.close()
        if isinstance(self._loop, BackgroundLoop):
            await result_of(self._loop.drain_and_stop(self._dispose))
        elif self._loop.is_current:  # another one may not be running any more
            await result_of(saved)

    def abandon(self) -> None:
        """Do the same without waiting."""
        self._saves.close()
        if isinstance(self._loop, BackgroundLoop):
            self._loop.drain_and_stop(self._dispose)


def make_executor(target: Target, options: EngineOptions) -> SqlExecutor:
    """Return the executor for a target; called in the loop that uses the store first."""
    engine, one_thread = target.engine, target.in_memory
    if isinstance(engine, AsyncEngine):
        pooled = PooledTransactor(
            engine.sync_engine,
            _autocommitting(engine.sync_engine),
            _sleep_in_greenlet,
            patience=options.timeout,
        )
        return LoopExecutor(engine, CallersLoop(_OTHER_LOOP), pooled)
    if engine is not None:
        pooled = PooledTransactor(
            engine, _autocommitting(engine), time.sleep, patience=options.timeout
        )
        return ThreadExecutor(engine, pooled, pooled, one_thread=one_thread, own=False)
    if target.family == "sqlite":
        engine, file = make_sqlite_engine(target, options)
        writer = SqliteTransactor(engine, file)
        reader = writer if one_thread else SqliteTransactor(engine, file)
        return ThreadExecutor(engine, writer, reader, one_thread=one_thread, own=True)
    made, isolation = make_async_engine(target, options)
    base = transacting = made.sync_engine
    if isolation is not None:
        transacting = base.execution_options(isolation_level=isolation)
    pooled = PooledTransactor(transacting, base, _sleep_in_greenlet, patience=options.timeout)
    return LoopExecutor(made, BackgroundLoop(_NAME), pooled)


def _error_for(error: BaseException, key: ChatKey | None) -> BaseException:
    if isinstance(error, TransactionFailedError):
        return error.translated(key)
    return error_for_waiter(error, key)


def _sleep_in_greenlet(seconds: float) -> None:
    await_only(asyncio.sleep(seconds))


def _autocommitting(engine: Engine) -> Engine:
    # Without BEGIN and COMMIT, a statement to PostgreSQL is one round trip instead of three; on
    # MySQL switching autocommit on would be a round trip of its own.
    if engine.dialect.name != "postgresql":
        return engine
    return engine.execution_options(isolation_level="AUTOCOMMIT")
