"""Reading other libraries' tables, in any database that this library knows; none is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Select,
    Table,
    create_engine,
    func,
    inspect,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agent_memory.audit.chunks import Chunk, DefaultIds, SourceEntry, Tally, in_chunks
from agent_memory.audit.findings import Finding
from agent_memory.audit.log_pages import in_thread
from agent_memory.audit.sources.layouts import LAYOUTS, Layout
from agent_memory.errors import (
    AgentMemoryError,
    InvalidRequestError,
    StorageError,
    StorageUnavailableError,
)
from agent_memory.storage.sql.urls import Target, parse_target
from agent_memory.storage.urls import without_secrets

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

# Rows held at a time: one of them may hold a whole file.
_PART: Final = 100


@contextmanager
def _errors(shown: str) -> Generator[None]:
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        # The driver's message alone: SQLAlchemy adds the statement and a link.
        cause = getattr(error, "orig", None) or error
        raise StorageUnavailableError(f"{shown} cannot be read: {cause}") from error


class ReadOnlyFile:
    """Reads a SQLite file, opened so that it cannot be changed.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._shown = str(path)
        name = quote(str(path.absolute()))
        self._engine = create_engine(
            # Another library's database: opened so that even a mistake here could not change it.
            f"sqlite:///file:{name}?mode=ro&uri=true",
            poolclass=NullPool,
            # Used by one thread at a time, but not always the same one.
            connect_args={"check_same_thread": False},
        )

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return what a function makes of a connection."""
        return await asyncio.to_thread(self._run, work)

    def stream(self, query: Select[Any]) -> AsyncIterator[Rows]:
        """Yield the rows of a query, some at a time."""
        return in_thread(self._parts(query))

    async def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _run(self, work: Callable[[Connection], T]) -> T:
        with _errors(self._shown), self._engine.connect() as connection:
            return work(connection)

    def _parts(self, query: Select[Any]) -> Iterator[Rows]:
        with _errors(self._shown), self._engine.connect() as connection:
            result = connection.execution_options(yield_per=_PART).execute(query)
            for part in result.partitions():
                yield [tuple(row) for row in part]


class ReadOnlyServer:
    """Reads a database behind a URL.

    Args:
        target: the URL, understood.
    """

    def __init__(self, target: Target) -> None:
        self._shown = target.shown
        self._engine = create_async_engine(
            cast("Any", target.url), poolclass=NullPool, connect_args=dict(target.connect_args)
        )

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return what a function makes of a connection."""
        with _errors(self._shown):
            async with self._engine.connect() as connection:
                return await connection.run_sync(work)

    async def stream(self, query: Select[Any]) -> AsyncIterator[Rows]:
        """Yield the rows of a query, some at a time."""
        with _errors(self._shown):
            async with self._engine.connect() as connection:
                result = await connection.stream(query, execution_options={"yield_per": _PART})
                async for part in result.partitions():
                    yield [tuple(row) for row in part]

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()


async def open_tables(
    url: str, form: str | None, ids: DefaultIds, table: str | None, tally: Tally
) -> tuple[AsyncIterator[Chunk | Finding], int]:
    """Find a library's messages in a database.

    Args:
        url: of the database, which is only read.
        form: which library's layout; None to detect it.
        ids: for where the layout has none.
        table: the table's name, where it is not the usual one.
        tally: counts the messages that were read.

    Returns:
        What there is, and how many messages.

    Raises:
        InvalidRequestError: there is nothing that is known, or more than one thing.
        StorageError: the database does not answer, or is missing.
    """
    reader = _reader(url)
    try:
        layout, found, total = await reader.run(lambda conn: _recognise(conn, url, form, table))
    except BaseException:
        await reader.close()
        raise
    return _chunks(reader, layout, found, ids, tally), total


async def _chunks(
    reader: ReadOnlyFile | ReadOnlyServer,
    layout: Layout,
    table: Table,
    ids: DefaultIds,
    tally: Tally,
) -> AsyncIterator[Chunk | Finding]:
    """Read the table in the order of chats and numbers, in one query, a part at a time."""
    columns = [table.c[name] for name in layout.columns]
    query = select(*columns).order_by(*columns[: len(layout.chat) + 1])
    done = 0
    try:
        async for rows in reader.stream(query):
            for piece in in_chunks(_messages(rows, layout, table.name, ids, done)):
                if isinstance(piece, Chunk):
                    tally.read[f"table of {layout.name}"] += len(piece.entries)
                yield piece
            done += len(rows)
    finally:
        await reader.close()


def _reader(url: str) -> ReadOnlyFile | ReadOnlyServer:
    target = parse_target(url)
    if target.family != "sqlite" or target.url is None:
        return ReadOnlyServer(target)
    path = target.path
    if path is None or not path.exists():
        raise StorageError(f"there is no {path or without_secrets(url)}")
    return ReadOnlyFile(path)


def _recognise(
    connection: Connection, url: str, form: str | None, table: str | None
) -> tuple[Layout, Table, int]:
    """Return the layout that a database holds, its table, and how many messages there are."""
    inspector = inspect(connection)
    names = inspector.get_table_names()
    found = [
        (layout, name)
        for layout in LAYOUTS
        if form in (None, layout.name)
        for name in ([table] if table else [layout.table])
        if name in names
        and set(layout.columns) <= {str(column["name"]) for column in inspector.get_columns(name)}
    ]
    if len(found) == 1:
        layout, name = found[0]
        columns = [Column[Any](column) for column in layout.columns]
        messages = Table(name, MetaData(), *columns)
        count = connection.execute(select(func.count()).select_from(messages)).scalar_one()
        return layout, messages, int(count)
    wanted = ", ".join(f"{layout.table} ({layout.name})" for layout in LAYOUTS)
    where = without_secrets(url)
    if found:
        kinds = " and ".join(layout.name for layout, _ in found)
        raise InvalidRequestError(f"{where} holds messages of {kinds}; say which, with --from")
    raise InvalidRequestError(
        f"{where} holds none of the tables {wanted}; give --table where it has another name. "
        "(From one of this library's own stores: agent-memory copy)"
    )


def _messages(
    rows: Sequence[Sequence[Any]], layout: Layout, table: str, ids: DefaultIds, done: int
) -> Iterator[SourceEntry | Finding]:
    width, source = len(layout.chat), f"table {table}, {layout.number}"
    for count, row in enumerate(rows, done + 1):
        number = row[width]
        try:
            key = layout.key(row[:width], ids)
            message = layout.read(number, row[width + 1 :])
        except AgentMemoryError as error:
            yield Finding(f"{source} {number}", str(error))
        else:
            yield SourceEntry(key, message, source, number, done=count)
