"""Every statement the store sends, compiled once per engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Dialect,
    and_,
    asc,
    bindparam,
    delete,
    desc,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from agent_memory.storage.sql.compiled import (
    AnyConnection,
    Insertion,
    Row,
    Statement,
    StatementSet,
    bind,
    many,
)
from agent_memory.storage.sql.schema import KEY_COLUMNS, Tables


class RecordStatements(StatementSet):
    """The statements about summary records; see :class:`StatementSet`."""

    @cached_property
    def add(self) -> Insertion:
        """Insert records."""
        return self._adding(self.tables.records)

    @cached_property
    def newest(self) -> Statement:
        """Find the newest record of `chat`: number, id."""
        records = self.tables.records.c
        finding = select(records.number, records.id).where(self._in_chat(records))
        return self._compile(finding.order_by(records.number.desc()).limit(1))

    @cached_property
    def load(self) -> Statement:
        """Read the newest record of a chat: chat, number, body."""
        newest = self._records().order_by(self.tables.records.c.number.desc())
        return self._compile(newest.limit(1))

    @cached_property
    def list(self) -> Statement:
        """Read all records of a chat: chat, number, body."""
        return self._compile(self._records().order_by(self.tables.records.c.number))

    @cached_property
    def drop(self) -> Statement:
        """Delete the records of `chat`."""
        records = self.tables.records
        return self._compile(delete(records).where(self._in_chat(records.c)))

    def _records(self) -> Any:
        chats, records = self.tables.chats, self.tables.records
        joined = chats.join(records, records.c.chat == chats.c.number)
        columns = records.c.chat, records.c.number, records.c.body
        return select(*columns).select_from(joined).where(*self._key_is())


IDS_AT_ONCE: Final = 500
"""How many ids one look-up may name: older releases of SQLite take 999 parameters."""

_RAISED: Final = (*KEY_COLUMNS, "last")

_ZERO: Final[ColumnElement[int]] = literal_column("0")
_ALWAYS: Final[ColumnElement[bool]] = true()


class Statements(StatementSet):
    """The statements about chats and their entries; see :class:`StatementSet`."""

    def __init__(self, tables: Tables, dialect: Dialect) -> None:
        super().__init__(tables, dialect)
        self.records = RecordStatements(tables, dialect)
        self._returns_rows = bool(getattr(dialect, "insert_returning", False))
        self._known = lru_cache(self._compile_known)
        self._pages = lru_cache(self._compile_page)

    # -------------------------------------------------------------------------------- chats

    def advance_last(
        self, connection: AnyConnection, chats: Sequence[Row], now: int
    ) -> Iterator[Row]:
        """Raise `last` of several chats, making those that are new.

        Args:
            connection: in a transaction, which then holds locks on them, taken in this order.
            chats: of each, its key and by how much `last` is raised.
            now: the time of the change.

        Yields:
            Of each: its key, number, floor and last, in any order.
        """
        times = {"floor": 0, "created_at": now, "updated_at": now}
        rows = [dict(zip(_RAISED, chat, strict=True), **times) for chat in chats]
        if not self._returns_rows:
            many(connection).execute(self._upsert, rows)
            keys = [chat[:-1] for chat in chats]
            yield from many(connection).execute(self._chats_of, {"keys": keys})
        elif self.family == "sqlite" or len(rows) == 1:
            # Core would take longer than SQLite itself, which is in this process.
            for row in rows:
                yield from self._advance_last.rows(connection, row)
        else:
            yield from many(connection).execute(self._upsert, rows)

    @cached_property
    def _advance_last(self) -> Statement:
        keys = [*_RAISED, "floor", "created_at", "updated_at"]
        return self._compile(self._upsert, column_keys=keys)

    @cached_property
    def _upsert(self) -> Any:
        chats = self.tables.chats
        if self.family == "mysql":
            adding: Any = mysql.insert(chats)
            upsert = adding.on_duplicate_key_update(
                last=chats.c.last + adding.inserted.last, updated_at=adding.inserted.updated_at
            )
        else:
            dialect: Any = postgresql if self.family == "postgresql" else sqlite
            adding = dialect.insert(chats)
            upsert = adding.on_conflict_do_update(
                index_elements=[chats.c[name] for name in KEY_COLUMNS],
                set_={
                    "last": chats.c.last + adding.excluded.last,
                    "updated_at": adding.excluded.updated_at,
                },
            )
        return upsert.returning(*self._chat_columns()) if self._returns_rows else upsert

    @cached_property
    def _chats_of(self) -> Any:
        columns = self.tables.chats.c
        key = tuple_(*(columns[name] for name in KEY_COLUMNS))
        return select(*self._chat_columns()).where(key.in_(bindparam("keys", expanding=True)))

    def _chat_columns(self) -> list[ColumnElement[Any]]:
        columns = self.tables.chats.c
        names = (*KEY_COLUMNS, "number", "floor", "last")
        return [columns[name] for name in names]

    @cached_property
    def lock(self) -> Statement:
        """Lock a chat's row for the transaction: number, floor, last; no row if there is none."""
        chats = self.tables.chats
        columns = chats.c.number, chats.c.floor, chats.c.last
        if self.family == "sqlite":
            # A write, so that the transaction never upgrades from reader to writer, which fails
            # at once with SQLITE_BUSY when another one wrote in between
            # (https://www.sqlite.org/lang_transaction.html).
            touch = update(chats).where(*self._key_is()).values(last=chats.c.last)
            return self._compile(touch.returning(*columns))
        return self._compile(select(*columns).where(*self._key_is()).with_for_update())

    @cached_property
    def set_last(self) -> Statement:
        """Set `last` of the chat `number`."""
        return self._set("last")

    @cached_property
    def set_floor(self) -> Statement:
        """Set `floor` of the chat `number`."""
        return self._set("floor")

    def _set(self, name: str) -> Statement:
        chats = self.tables.chats
        changed = {
            name: bind(chats.c[name], "value"),
            "updated_at": bind(chats.c.updated_at, "now"),
        }
        number = bind(chats.c.number, "chat")
        return self._compile(update(chats).where(chats.c.number == number).values(changed))

    @cached_property
    def purge(self) -> Statement:
        """Remove the heads of chats that hold nothing, untouched since `before`."""
        chats = self.tables.chats
        old = chats.c.updated_at <= bind(chats.c.updated_at, "before")
        return self._compile(delete(chats).where(chats.c.floor == chats.c.last, old))

    def page(self, scope: int, *, following: bool) -> Statement:
        """List `limit` chats in key order.

        Args:
            scope: how many key columns are given, as `scope_…` values.
            following: whether to list only what comes after the key in the `after_…` values.
        """
        return self._pages(scope, following)

    def _compile_page(self, scope: int, following: bool) -> Statement:  # noqa: FBT001
        chats = self.tables.chats
        columns = [chats.c[name] for name in KEY_COLUMNS]
        shown = *columns, chats.c.floor, chats.c.last, chats.c.created_at, chats.c.updated_at
        listing = select(*shown).where(chats.c.last > chats.c.floor)
        for column in columns[:scope]:
            listing = listing.where(column == bind(column, f"scope_{column.name}"))
        if following:
            listing = listing.where(self._after(columns[scope:]))
        limit = bindparam("limit", type_=chats.c.number.type)
        return self._compile(listing.order_by(*columns).limit(limit))

    def _after(self, columns: list[Any]) -> ColumnElement[bool]:
        bounds = [bind(column, f"after_{column.name}") for column in columns]
        if self.family != "mysql":
            return tuple_(*columns) > tuple_(*bounds)
        # MySQL's optimizer finds ranges in this form, not in a comparison of rows.
        after: ColumnElement[bool] = columns[-1] > bounds[-1]
        for column, bound in zip(columns[-2::-1], bounds[-2::-1], strict=True):
            after = or_(column > bound, and_(column == bound, after))
        return after

    # ------------------------------------------------------------------------------ entries

    @cached_property
    def add_entry(self) -> Insertion:
        """Insert entries."""
        return self._adding(self.tables.entries)

    @cached_property
    def read_all(self) -> Statement:
        """Read a log: chat, floor, position, body; one row with nulls if it is empty.

        ChatRow and entries come from one statement, hence from one snapshot: a delete between the
        two never pairs an old floor with new rows.
        """
        return self._reading()

    @cached_property
    def read(self) -> Statement:
        """Read as :attr:`read_all`, above `after`."""
        # Apart from `read_all`: a plan that PostgreSQL keeps for both would be bad for one.
        return self._reading(self.tables.entries.c.position > self._bigint("after"))

    @cached_property
    def read_first(self) -> Statement:
        """Read as :attr:`read`, the oldest `first` at most."""
        position = self.tables.entries.c.position
        return self._reading(position > self._bigint("after"), "first")

    @cached_property
    def read_last(self) -> Statement:
        """Read as :attr:`read`, the newest `newest` at most, the newest first."""
        position = self.tables.entries.c.position
        return self._reading(position > self._bigint("after"), "newest", newest_first=True)

    def _reading(
        self,
        bound: ColumnElement[bool] = _ALWAYS,
        limit: str = "",
        *,
        newest_first: bool = False,
    ) -> Statement:
        # Entries are counted, not positions: rows may have been deleted behind the store's back.
        # A limit in the index's own order bounds what any engine looks at, whatever it guesses.
        chats, entries = self.tables.chats, self.tables.entries
        in_order = desc if newest_first else asc
        part: Any = entries
        if limit and self.family != "sqlite":
            # Servers would read the whole log for a limit outside the join.
            number = select(chats.c.number).where(*self._key_is()).scalar_subquery()
            limited = select(entries).where(entries.c.chat == number, bound)
            part = limited.order_by(in_order(entries.c.position)).limit(self._bigint(limit))
            part, bound = part.subquery("part"), _ALWAYS
        joined = chats.outerjoin(part, and_(part.c.chat == chats.c.number, bound))
        columns = chats.c.number, chats.c.floor, part.c.position, part.c.body
        reading = select(*columns).select_from(joined).where(*self._key_is())
        reading = reading.order_by(in_order(part.c.position))
        if limit and part is entries:
            # With the offset spelled out SQLAlchemy adds no parameter of its own for it.
            reading = reading.limit(self._bigint(limit)).offset(_ZERO)
        return self._compile(reading)

    @cached_property
    def read_session(self) -> Statement:
        """Read all chats of a session: agent id, chat, floor, position, body."""
        chats, entries = self.tables.chats, self.tables.entries
        joined = chats.join(entries, entries.c.chat == chats.c.number)
        columns = (
            chats.c.agent_id,
            chats.c.number,
            chats.c.floor,
            entries.c.position,
            entries.c.body,
        )
        reading = select(*columns).select_from(joined).where(*self._key_is()[:2])
        return self._compile(reading.order_by(chats.c.agent_id, entries.c.position))

    def known(self, connection: AnyConnection, chat: int, ids: Sequence[Any]) -> Iterator[Row]:
        """Find which of these ids a chat holds: id, position, body."""
        for start in range(0, len(ids), IDS_AT_ONCE):
            part = ids[start : start + IDS_AT_ONCE]
            values = {"chat": chat, **{f"id_{i}": value for i, value in enumerate(part)}}
            yield from self._known(len(part)).rows(connection, values)

    def _compile_known(self, count: int) -> Statement:
        entries = self.tables.entries.c
        ids = [bind(entries.id, f"id_{i}") for i in range(count)]
        finding = select(entries.id, entries.position, entries.body)
        return self._compile(finding.where(self._in_chat(entries), entries.id.in_(ids)))

    @cached_property
    def oldest_kept(self) -> Statement:
        """Find the position of the oldest of the newest `skip` + 1 messages of `chat`."""
        entries = self.tables.entries.c
        finding = select(entries.position).where(self._in_chat(entries), entries.note == _ZERO)
        skip = self._bigint("skip")
        return self._compile(finding.order_by(entries.position.desc()).limit(1).offset(skip))

    @cached_property
    def count_messages(self) -> Statement:
        """Count the messages of `chat` up to `position`."""
        entries = self.tables.entries.c
        counting = select(func.count()).select_from(self.tables.entries)
        return self._compile(counting.where(*self._up_to(), entries.note == _ZERO))

    @cached_property
    def drop_entries(self) -> Statement:
        """Delete the entries of `chat` up to `position`."""
        return self._compile(delete(self.tables.entries).where(*self._up_to()))

    def _up_to(self) -> list[ColumnElement[bool]]:
        entries = self.tables.entries.c
        return [self._in_chat(entries), entries.position <= self._bigint("position")]
