"""Reading other libraries' tables, in any database that this library knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, func, inspect, select

from agent_memory.audit.chunks import Bad, Chunk, Whose
from agent_memory.audit.sources.items import Tally
from agent_memory.audit.sources.layouts import LAYOUTS, Layout
from agent_memory.audit.sources.querying import FileReader, Reader, ServerReader
from agent_memory.errors import AgentMemoryError, InvalidRequestError, StorageError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.sql.urls import parse_target
from agent_memory.storage.urls import without_secrets


async def open_tables(
    url: str, form: str | None, whose: Whose, table: str | None, tally: Tally
) -> tuple[AsyncIterator[Chunk | Bad], int]:
    """Find a library's messages in a database.

    Args:
        url: of the database, which is only read.
        form: whose layout; None to find out.
        whose: ids for where the layout has none.
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
        layout, found = await reader.run(lambda conn: _recognise(conn, url, form, table))
        total = await reader.run(
            lambda conn: int(conn.execute(select(func.count()).select_from(found)).scalar_one())
        )
    except BaseException:
        await reader.close()
        raise
    return _chunks(reader, layout, found, whose, tally), total


async def _chunks(
    reader: Reader, layout: Layout, table: Table, whose: Whose, tally: Tally
) -> AsyncIterator[Chunk | Bad]:
    """Read the table in the order of chats and numbers, in one query, a part at a time."""
    columns = [table.c[name] for name in layout.columns]
    query = select(*columns).order_by(*columns[: len(layout.chat) + 1])
    done = 0
    try:
        async for rows in reader.stream(query):
            for piece in _pieces(rows, layout, table.name, whose, done):
                if isinstance(piece, Chunk):
                    tally.read[f"table of {layout.name}"] += len(piece.entries)
                yield piece
            done += len(rows)
    finally:
        await reader.close()


def _reader(url: str) -> Reader:
    target = parse_target(url)
    if target.family != "sqlite" or target.url is None:
        return ServerReader(target)
    path = target.path
    if path is None or not path.exists():
        raise StorageError(f"there is no {path or without_secrets(url)}")
    return FileReader(path)


def _recognise(
    connection: Connection, url: str, form: str | None, table: str | None
) -> tuple[Layout, Table]:
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
        return layout, Table(name, MetaData(), *columns)
    wanted = ", ".join(f"{layout.table} ({layout.name})" for layout in LAYOUTS)
    where = without_secrets(url)
    if found:
        kinds = " and ".join(layout.name for layout, _ in found)
        raise InvalidRequestError(f"{where} holds messages of {kinds}; say which, with --from")
    raise InvalidRequestError(
        f"{where} holds none of the tables {wanted}; give --table where it has another name. "
        "(From one of this library's own stores: agent-memory copy)"
    )


def _pieces(
    rows: Sequence[Sequence[Any]], layout: Layout, table: str, whose: Whose, done: int
) -> Iterator[Chunk | Bad]:
    width, source = len(layout.chat), f"table {table}, {layout.number}"
    held: list[tuple[ConversationMessage, int]] = []
    key: ChatKey | None = None
    for count, row in enumerate(rows, done):
        number = row[width]
        try:
            other = layout.key(row[:width], whose)
            message = layout.read(number, row[width + 1 :])
        except AgentMemoryError as error:
            yield from _chunk(key, held, source, count)
            held = []
            yield Bad(f"{source} {number}", str(error))
            continue
        if other != key:
            yield from _chunk(key, held, source, count)
            key, held = other, []
        held.append((message, number))
    yield from _chunk(key, held, source, done + len(rows))


def _chunk(
    key: ChatKey | None, held: Sequence[tuple[ConversationMessage, int]], source: str, done: int
) -> Iterator[Chunk]:
    if key is not None and held:
        messages = [message for message, _ in held]
        yield Chunk(key, messages, [number for _, number in held], source, (), done)
