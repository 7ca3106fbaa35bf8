"""Reading other libraries' tables, in any database that this library knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    and_,
    create_engine,
    inspect,
    or_,
    select,
)
from sqlalchemy.pool import NullPool

from agent_memory.audit.chunks import Bad, Chunk
from agent_memory.audit.openai_files import Whose
from agent_memory.audit.pages import PAGE, PAGE_BYTES
from agent_memory.audit.sources.layouts import LAYOUTS, Layout
from agent_memory.errors import AgentMemoryError, InvalidRequestError, StorageError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.sql.engines import EngineOptions
from agent_memory.storage.sql.runners import Runner, make_runner
from agent_memory.storage.sql.urls import Target, parse_target
from agent_memory.storage.urls import without_secrets

_TIMEOUT: Final = 30.0


async def open_tables(
    url: str, form: str | None, whose: Whose, table: str | None
) -> tuple[AsyncIterator[Chunk | Bad], int]:
    """Find a library's messages in a database.

    Args:
        url: of the database, which is only read.
        form: whose layout; None to find out.
        whose: ids for where the layout has none.
        table: the table's name, where it is not the usual one.

    Returns:
        What there is, and how many messages.

    Raises:
        InvalidRequestError: there is nothing that is known, or more than one thing.
        StorageError: the database does not answer, or is missing.
    """
    runner, engine = _connect(url)
    try:
        layout, found = await runner.read(lambda conn: _recognise(conn, url, form, table))
        counting = select(_count()).select_from(found)
        total = await runner.read(lambda conn: int(conn.execute(counting).scalar_one()))
    except BaseException:
        await _disconnect(runner, engine)
        raise
    return _chunks(runner, engine, layout, found, whose), total


def _count() -> Any:
    from sqlalchemy import func  # noqa: PLC0415  (its attributes are made on demand)

    return func.count()


def _connect(url: str) -> tuple[Runner, Engine | None]:
    target = parse_target(url)
    options = EngineOptions(_TIMEOUT, "full", {})
    if target.family != "sqlite" or target.url is None:
        return make_runner(target, options), None
    path = target.path
    if path is None or not path.exists():
        raise StorageError(f"there is no {path or without_secrets(url)}")
    engine = _reading_engine(path)
    reading = Target(target.family, None, engine, False, target.shown)
    return make_runner(reading, options), engine


def _reading_engine(path: Path) -> Engine:
    """Open somebody else's file without writing to it: no journal of ours, no tables."""
    name = quote(str(path.absolute()))
    return create_engine(f"sqlite:///file:{name}?mode=ro&uri=true", poolclass=NullPool)


async def _disconnect(runner: Runner, engine: Engine | None) -> None:
    await runner.close()
    if engine is not None:
        engine.dispose()


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
        return layout, Table(name, MetaData(), *map(_column, layout.columns))
    wanted = ", ".join(f"{layout.table} ({layout.name})" for layout in LAYOUTS)
    where = without_secrets(url)
    if found:
        kinds = " and ".join(layout.name for layout, _ in found)
        raise InvalidRequestError(f"{where} holds messages of {kinds}; say which, with --from")
    raise InvalidRequestError(
        f"{where} holds none of the tables {wanted}; give --table where it has another name. "
        "(From one of this library's own stores: agent-memory copy)"
    )


def _column(name: str) -> Column[Any]:
    return Column(name)


async def _chunks(
    runner: Runner, engine: Engine | None, layout: Layout, table: Table, whose: Whose
) -> AsyncIterator[Chunk | Bad]:
    """Read the table in the order of chats and numbers, a page at a time."""
    after: Sequence[Any] | None = None
    done, size = 0, PAGE
    try:
        while True:
            rows = await runner.read(_page(layout, table, after, size))
            for piece in _pieces(rows, layout, table.name, whose, done):
                yield piece
            done += len(rows)
            if len(rows) < size:
                return
            after = rows[-1][: len(layout.chat) + 1]
            length = sum([len(str(value)) for row in rows for value in row]) // len(rows)
            size = max(1, min(PAGE, PAGE_BYTES // (length + 1)))
    finally:
        await _disconnect(runner, engine)


def _page(
    layout: Layout, table: Table, after: Sequence[Any] | None, size: int
) -> Callable[[Connection], list[tuple[Any, ...]]]:
    order = [table.c[name] for name in (*layout.chat, layout.number)]
    query = select(*[table.c[name] for name in layout.columns]).order_by(*order).limit(size)
    if after is not None:
        # Row by row in the order of the index: (a, b) > (x, y), spelled out for every engine.
        query = query.where(
            or_(*[
                and_(*[order[i] == after[i] for i in range(depth)], order[depth] > after[depth])
                for depth in range(len(order))
            ])
        )  # fmt: skip

    def rows(connection: Connection) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.execute(query)]

    return rows


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
