"""Chats in a SQL database: :class:`SqlChatStorage`."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from agent_memory.errors import InvalidRequestError, StorageClosedError, StorageError
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage.base import ChatStorage, Scope
from agent_memory.storage.hooks import Found, StoredSummaries
from agent_memory.storage.sql import schema
from agent_memory.storage.sql.appending import GroupAppender
from agent_memory.storage.sql.engines import Durability, EngineOptions, max_body_bytes
from agent_memory.storage.sql.entries import RowCodec
from agent_memory.storage.sql.executor import SqlExecutor, make_executor
from agent_memory.storage.sql.operations import ChatOperations
from agent_memory.storage.sql.postgresql import PostgresAppend
from agent_memory.storage.sql.schema import make_tables
from agent_memory.storage.sql.statements import AnyConnection, Statements, core
from agent_memory.storage.sql.transactor import Transactor
from agent_memory.storage.sql.urls import UrlOrEngine, parse_target
from agent_memory.validation import checked_seconds

T = TypeVar("T")

_PAGE: Final = 500  # chats listed at a time
_FEW: Final = 64  # entries, and characters of theirs, that may be read between two saves
_FEW_CHARACTERS: Final = 200_000


@attrs.frozen
class _Opened:
    """What is known once the engine has connected."""

    executor: SqlExecutor
    statements: Statements
    codec: RowCodec

    def operations(self, connection: AnyConnection) -> ChatOperations:
        return ChatOperations(connection, self.statements, self.codec)


class SqlChatStorage(ChatStorage):
    """Chats in SQLite, PostgreSQL (asyncpg), MariaDB or MySQL (asyncmy), through SQLAlchemy.

    Durability: a save that has returned is committed; on SQLite it is on the disk
    (``synchronous=FULL``), on a server as the server is set up. Concurrency: any tasks, threads
    and event loops; on SQLite any processes of this machine, on a server any anywhere. Saves
    that wait at the same moment share one transaction.

    Its input and output runs on threads of its own, so that it works from many event loops,
    also short-lived ones. Known message ids: all of those in the chat.

    A SQLite file is made for its owner alone (0600), with its -wal and -shm. While it is open it
    is watched: a save into a file that was deleted or replaced raises ``StorageUnavailableError``,
    and the next call uses what is there then. What is deleted or trimmed is overwritten, and its
    log emptied, in the same call, or once the readers at that time have ended. With a caller's
    ``Engine`` none of this is done.

    Args:
        url_or_engine: a URL such as ``sqlite:///chats.db``, ``sqlite://`` (in memory),
            ``postgresql://user:password@host/database``, ``mysql://…`` or ``mariadb://…``; or an
            ``Engine`` or ``AsyncEngine`` of SQLAlchemy's, which is used as it is and left open.
            An ``AsyncEngine`` serves the event loop that first uses the store; any other gets
            an ``InvalidRequestError``. A server's URL may have the options of libpq or of MySQL's
            client, as consoles hand them out: ``?sslmode=verify-full&sslrootcert=ca.pem``,
            ``?ssl_mode=VERIFY_IDENTITY&ssl_ca=ca.pem``, ``connect_timeout`` and others.
            ``channel_binding=require``, which asyncpg cannot do, becomes ``sslmode=verify-full``,
            with the authorities that the system trusts unless ``sslrootcert`` names one.
        create_tables: whether to make the tables when they are missing.
        table_prefix: what their names begin with; 1 to 40 ASCII letters, digits, ``_``, ``$``.
        schema: the schema (on MySQL: the database) they are in, which must exist.
        timeout: seconds, above 0, that one statement, a lock or a connection is waited for.
        durability: on SQLite, ``"full"`` or ``"normal"``: with the latter a commit does not wait
            for the disk, and the last ones may be lost in a power cut, never in a crash of the
            process (https://www.sqlite.org/pragma.html#pragma_synchronous).
        engine_options: passed on to SQLAlchemy's ``create_engine`` (SQLite) or
            ``create_async_engine``, such as ``{"pool_size": 20}`` for a server. On SQLite
            ``echo`` and engine events see how tables are made, not the statements of saves and
            reads, which go to the driver directly; ``pool`` and ``poolclass`` are refused.

    Raises:
        InvalidRequestError: an argument is invalid, or does not apply to this database.
        MissingDependencyError: the URL's driver is not installed.
    """

    _has_threads = True
    _append_is_cancel_safe = True  # it waits for its handoff, to the end

    def __init__(
        self,
        url_or_engine: UrlOrEngine,
        *,
        create_tables: bool = True,
        table_prefix: str = "agent_memory_",
        schema: str | None = None,
        timeout: float = 30.0,
        durability: Durability = "full",
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._opened_parts: _Opened | None = None
        self._target = parse_target(url_or_engine)
        self._tables = make_tables(table_prefix, schema)
        self._create_tables = create_tables
        self._options = EngineOptions(timeout, durability, dict(engine_options or {}))
        self._check_options()

    def _check_options(self) -> None:
        options = self._options
        checked_seconds(options.timeout, "timeout")
        if options.durability not in ("full", "normal"):
            raise InvalidRequestError(
                f"durability must be 'full' or 'normal', not {options.durability!r}"
            )
        if options.durability != "full" and (
            self._target.family != "sqlite" or self._target.engine is not None
        ):
            raise InvalidRequestError(
                "durability is for SQLite URLs; set it on the server or on the engine instead"
            )
        if options.more and self._target.engine is not None:
            raise InvalidRequestError("engine_options are for URLs; the engine is made already")
        if self._target.family == "sqlite":
            _check_no_pool(options.more)

    def __repr__(self) -> str:
        return f"SqlChatStorage({self._target.shown!r})"

    def __del__(self) -> None:
        opened = getattr(self, "_opened_parts", None)
        if opened is not None:
            message = f"unclosed {self!r}; call aclose()"
            warnings.warn(message, ResourceWarning, stacklevel=1, source=self)
            opened.executor.abandon()

    @property
    def scope(self) -> Scope:
        """``"process"`` in memory, ``"host"`` for a SQLite file, ``"network"`` for a server."""
        if self._target.in_memory:
            return "process"
        return "host" if self._target.family == "sqlite" else "network"

    @property
    def path(self) -> Path | None:
        """The SQLite file that the chats are in; None for anything else."""
        return self._target.path

    async def migrate(self) -> int:
        """Bring tables of an older layout to this release's; make a backup first.

        It is never done in silence: a store refuses to open older tables. No other process may
        use the tables during it.

        Returns:
            The version of the layout, which is this release's.

        Raises:
            StorageError: the tables are of a newer release.
        """
        self._check_not_closed()
        executor = make_executor(self._target, self._options)
        try:
            return await executor.write(
                lambda connection: schema.migrate(
                    core(connection), self._tables, schema.MIGRATIONS
                )
            )
        finally:
            await executor.close()

    def summaries(self) -> StoredSummaries:
        """Return the summary records, which live in a table beside the chats."""
        return StoredSummaries(self._put_record, self._records, self._drop_records)

    # -------------------------------------------------------------------------------- hooks

    async def _open(self) -> None:
        executor = make_executor(self._target, self._options)
        try:
            max_bytes = await executor.run(self._prepare)
        except BaseException:
            await executor.close()
            raise
        statements = Statements(self._tables, executor.engine.dialect)
        codec = RowCodec(statements, max_bytes)
        in_one_statement = None
        if statements.family == "postgresql":
            in_one_statement = PostgresAppend(statements).append
        executor.appender = GroupAppender(statements, codec, in_one_statement)
        self._opened_parts = _Opened(executor, statements, codec)

    def _prepare(self, transactor: Transactor) -> int:
        """Make the tables if they are missing; return how many bytes a body may have."""

        def is_ready(connection: AnyConnection) -> bool:
            return schema.is_ready(core(connection), self._tables)

        if not transactor.read(is_ready):
            if not self._create_tables:
                raise StorageError(
                    f"the table {self._tables.layout.fullname!r} does not exist and create_tables "
                    "is False; make the tables once by opening a store with create_tables=True"
                )
            transactor.transact(
                lambda connection: schema.create_tables(core(connection), self._tables),
                repeatable=True,
            )
            transactor.read(is_ready)
        return transactor.read(lambda connection: max_body_bytes(core(connection)))

    async def _close(self) -> None:
        opened, self._opened_parts = self._opened_parts, None
        if opened is not None:
            await opened.executor.close()

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        opened = self._parts()
        rows = opened.codec.encode(key, entries)
        return await opened.executor.append(key, entries, rows, sum(len(row[2]) for row in rows))

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        await self._ready()
        opened = self._parts()
        if last is not None and last <= _FEW and not after:
            newest = await opened.executor.read_small(
                lambda connection: opened.operations(connection).read_newest(
                    key, count=last, characters=_FEW_CHARACTERS
                )
            )
            if newest is not None:
                return newest
        return await opened.executor.read_entries(
            lambda connection: opened.operations(connection).read(
                key, after=after, first=first, last=last
            ),
            lambda rows: opened.codec.log_slice(rows, key),
            key=key,
        )

    async def _read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        await self._ready()
        opened = self._parts()
        return await opened.executor.read_entries(
            lambda connection: opened.operations(connection).read_session(user_id, session_id),
            lambda rows: opened.codec.session_slices(rows, user_id, session_id),
        )

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        scope = [part for part in (user_id, session_id) if part is not None]
        after: ChatKey | None = None
        while True:
            page = await self._query(
                partial(ChatOperations.list_page, scope=scope, after=after, limit=_PAGE)
            )
            for info in page:
                yield info
            if len(page) < _PAGE:
                return
            after = page[-1].key

    async def _forget(self, key: ChatKey, keep: int) -> int:
        return await self._write(lambda chats: chats.forget(key, keep), key=key, erases=True)

    async def _purge(self, older_than: timedelta) -> int:
        return await self._write(lambda chats: chats.purge(older_than), erases=True)

    async def _erase_deleted(self) -> None:
        if self._opened_parts is not None:
            await self._opened_parts.executor.erase()

    async def _put_record(self, key: ChatKey, record: SummaryRecord, replaces: str | None) -> bool:
        # Repeatable: once stored, it is the newest, and True is answered again.
        return await self._write(
            lambda chats: chats.put_record(key, record, replaces), key=key, repeatable=True
        )

    async def _records(self, key: ChatKey, *, newest_only: bool) -> Found:
        return await self._query(
            lambda chats: chats.read_records(key, newest_only=newest_only), key=key
        )

    async def _drop_records(self, key: ChatKey) -> int:
        count = await self._write(lambda chats: chats.drop_records(key), key=key, erases=True)
        await self._erase_deleted()
        return count

    # ------------------------------------------------------------------------- running them

    async def _write(
        self,
        work: Callable[[ChatOperations], T],
        *,
        key: ChatKey | None = None,
        repeatable: bool = False,
        erases: bool = False,
    ) -> T:
        await self._ready()
        opened = self._parts()
        return await opened.executor.write(
            lambda connection: work(opened.operations(connection)),
            key=key,
            repeatable=repeatable,
            erases=erases,
        )

    async def _query(
        self, work: Callable[[ChatOperations], T], *, key: ChatKey | None = None
    ) -> T:
        await self._ready()
        opened = self._parts()
        return await opened.executor.read(
            lambda connection: work(opened.operations(connection)), key=key
        )

    def _parts(self) -> _Opened:
        if self._opened_parts is None:
            raise StorageClosedError("SqlChatStorage is closed")
        return self._opened_parts


def _check_no_pool(options: Mapping[str, Any]) -> None:
    # Each thread keeps its connection and begins its transactions itself: another pool might hand
    # it a connection that is in use, in the middle of a transaction.
    for name in ("pool", "poolclass"):
        if name in options:
            raise InvalidRequestError(
                f"engine_options has {name!r}, which a SQLite URL does not take: the store keeps "
                "a connection for each of its threads. Remove it, or pass an Engine of your own"
            )
