"""Every statement the store sends: SQL, put into the driver's parameter style once per engine.

It is then run as text, because Core's per-execution cost would dominate a lone save.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, Protocol, TypeAlias, cast

import attrs
from sqlalchemy import ColumnElement, Connection, Dialect, bindparam, select, text, tuple_
from sqlalchemy.dialects import mysql, postgresql, sqlite

from agent_memory.messages import ChatKey
from agent_memory.storage.sql.schema import FAMILIES, KEY_COLUMNS, Tables

Row: TypeAlias = Sequence[Any]

KeyValues: TypeAlias = tuple[Any, Any, Any]
"""A chat's key as the engine keeps it; in the engine's order, which is that of the keys."""

IDS_AT_ONCE: Final = 500
"""How many ids one look-up may name: older releases of SQLite take 999 parameters."""

_KEY_IS: Final = "user_id = :user_id AND session_id = :session_id AND agent_id = :agent_id"
_ADVANCED: Final = (*KEY_COLUMNS, "last", "floor", "created_at", "updated_at")

# Chat, floor, position, body; one row with nulls if there are no entries. Chat and entries come
# from one statement, hence from one snapshot: a delete between the two never pairs an old floor
# with new rows.
_READ: Final = """\
SELECT chats.number, floor, position, body
FROM {chats} AS chats LEFT JOIN {entries} AS entries ON entries.chat = chats.number {bound}
WHERE {key} ORDER BY position {order} {limit}
"""
_AFTER: Final = "AND position > :after"

# The same with a limit, as servers need it: they read the whole log for one outside the join.
_READ_PART: Final = """\
SELECT chats.number, floor, position, body
FROM {chats} AS chats LEFT JOIN (
  SELECT chat, position, body FROM {entries}
  WHERE chat = (SELECT number FROM {chats} WHERE {key}) {bound}
  ORDER BY position {order} {limit}
) AS entries ON entries.chat = chats.number
WHERE {key} ORDER BY position {order}
"""

_READ_RECORDS: Final = """\
SELECT chat, records.number, body
FROM {chats} AS chats JOIN {records} AS records ON records.chat = chats.number
WHERE {key} ORDER BY records.number {ending}
"""


@attrs.define(eq=False)
class ChatRow:
    """A chat's row: its number, its floor and the position of its newest entry."""

    number: int
    floor: int
    last: int


def now() -> int:
    """Return the time as the tables keep it: microseconds since 1970."""
    return time.time_ns() // 1_000


class AnyConnection(Protocol):
    """What statements are run on: a ``Connection``, or a driver's own that looks like one."""

    def exec_driver_sql(self, statement: str, parameters: Any = ..., /) -> Any:
        """Execute a text; `parameters` are a list for several rows. Gives the driver's cursor."""


def core(connection: AnyConnection) -> Connection:
    """Return the connection of Core's that this is, or belongs to."""
    return cast("Connection", getattr(connection, "core", connection))


@attrs.frozen
class Statement:
    """One statement as the driver takes it.

    Attributes:
        text: in the driver's parameter style.
        names: of its parameters, in their order.
        by_name: whether the driver takes values by name.
    """

    text: str
    names: tuple[str, ...]
    by_name: bool

    def arrange(self, values: Mapping[str, Any]) -> Any:
        """Return values as the driver takes them."""
        return values if self.by_name else tuple([values[name] for name in self.names])

    def run(self, connection: AnyConnection, values: Mapping[str, Any]) -> int:
        """Execute it and return how many rows it changed."""
        changed: int = connection.exec_driver_sql(self.text, self.arrange(values)).rowcount
        return changed

    def insert(self, connection: AnyConnection, rows: Sequence[Row]) -> None:
        """Execute it for rows, at least one, with values in the order of its parameters."""
        given: list[Any] = (
            [dict(zip(self.names, row, strict=True)) for row in rows]
            if self.by_name
            else list(rows)
        )
        connection.exec_driver_sql(self.text, given if len(given) > 1 else given[0])

    def rows(self, connection: AnyConnection, values: Mapping[str, Any]) -> Sequence[Row]:
        """Execute it and return all rows."""
        found: Sequence[Row] = connection.exec_driver_sql(
            self.text, self.arrange(values)
        ).fetchall()
        return found

    def few_rows(
        self, connection: AnyConnection, values: Mapping[str, Any], characters: int
    ) -> Sequence[Row] | None:
        """Execute it and return all rows; None if their last columns hold more `characters`."""
        rows: list[Row] = []
        for row in connection.exec_driver_sql(self.text, self.arrange(values)):
            characters -= len(row[-1] or "")
            if characters < 0:
                return None
            rows.append(row)
        return rows

    def row(self, connection: AnyConnection, values: Mapping[str, Any]) -> Row | None:
        """Execute it and return its first row, or None."""
        rows = self.rows(connection, values)
        return rows[0] if rows else None


class Statements:
    """The statements about chats, their entries and their summary records.

    Args:
        tables: where the chats are.
        dialect: of an engine that has connected once, so that it knows the server's version.
    """

    def __init__(self, tables: Tables, dialect: Dialect) -> None:
        self.tables = tables
        self.family = FAMILIES[dialect.name]
        self._dialect = dialect
        self._returns_rows = bool(getattr(dialect, "insert_returning", False))
        self._known = lru_cache(self._known_among)
        self.page = lru_cache(self._page)
        self._set_up_chats()
        self._set_up_entries()
        self._set_up_records()

    def compile(self, sql: str, **parts: str) -> Statement:
        """Make a statement of SQL with ``:name`` parameters, and parts of it in braces.

        Tables are ``{chats}``, ``{entries}`` and ``{records}``; ``{key}`` selects a chat.
        """
        # The dialect quotes the tables' names where it must; no engine reserves the columns'.
        names: Any = self._dialect.identifier_preparer
        for table in ("chats", "entries", "records"):
            parts[table] = names.format_table(getattr(self.tables, table))
        return self._statement(text(sql.format(key=_KEY_IS, **parts)))

    def _statement(self, written: Any, column_keys: Sequence[str] | None = None) -> Statement:
        compiled = written.compile(dialect=self._dialect, column_keys=column_keys)
        by_name = compiled.positiontup is None
        names = tuple(compiled.params if by_name else compiled.positiontup)
        return Statement(compiled.string, names, by_name)

    # ---------------------------------------------------------------------------------- ids

    def id_value(self, text: str) -> str | bytes:
        """Return an id as the engine keeps it: MySQL compares bytes, the others text."""
        return text.encode() if self.family == "mysql" else text

    def id_text(self, value: str | bytes) -> str:
        """Return the id that :meth:`id_value` made this of."""
        return value.decode() if isinstance(value, bytes) else value

    def key_tuple(self, key: ChatKey) -> KeyValues:
        """Return a key as the engine keeps it."""
        if self.family == "mysql":
            return key.user_id.encode(), key.session_id.encode(), key.agent_id.encode()
        return key.user_id, key.session_id, key.agent_id

    def key_values(self, key: ChatKey) -> dict[str, Any]:
        """Return a key as values of the key columns."""
        return dict(zip(KEY_COLUMNS, self.key_tuple(key), strict=True))

    # -------------------------------------------------------------------------------- chats

    def _set_up_chats(self) -> None:
        # Locks a chat for the transaction: number, floor, last; no row if there is no such chat.
        lock = "SELECT number, floor, last FROM {chats} WHERE {key} FOR UPDATE"
        if self.family == "sqlite":
            # A write, so that the transaction never upgrades from reader to writer, which fails
            # at once with SQLITE_BUSY when another one wrote in between
            # (https://www.sqlite.org/lang_transaction.html).
            lock = "UPDATE {chats} SET last = last WHERE {key} RETURNING number, floor, last"
        self.lock = self.compile(lock)
        self.set_last = self.compile(
            "UPDATE {chats} SET last = :value, updated_at = :now WHERE number = :chat"
        )
        self.set_floor = self.compile(
            "UPDATE {chats} SET floor = :value, updated_at = :now WHERE number = :chat"
        )
        self.purge = self.compile(
            "DELETE FROM {chats} WHERE floor = last AND updated_at <= :before"
        )

    def _page(self, scope: int, following: bool) -> Statement:  # noqa: FBT001
        """List `limit` chats in key order.

        Args:
            scope: how many key columns are given, as `scope_…` values.
            following: whether to list only what comes after the key in the `after_…` values.
        """
        return self.compile(
            "SELECT {keys}, floor, last, created_at, updated_at FROM {chats} "
            "WHERE last > floor{given}{after} ORDER BY {keys} LIMIT :limit",
            keys=", ".join(KEY_COLUMNS),
            given="".join(f" AND {column} = :scope_{column}" for column in KEY_COLUMNS[:scope]),
            after=f" AND {self._comes_after(KEY_COLUMNS[scope:])}" if following else "",
        )

    def _comes_after(self, columns: Sequence[str]) -> str:
        if self.family != "mysql":
            bounds = ", ".join(f":after_{column}" for column in columns)
            return f"({', '.join(columns)}) > ({bounds})"
        # MySQL's optimizer finds ranges in this form, not in a comparison of rows.
        after = ""
        for column in reversed(columns):
            equal = f" OR {column} = :after_{column} AND ({after})" if after else ""
            after = f"{column} > :after_{column}{equal}"
        return f"({after})"

    def advance_last(
        self, connection: AnyConnection, counts: Mapping[KeyValues, int]
    ) -> dict[KeyValues, ChatRow]:
        """Lock chats and raise their last positions, making the chats that are new.

        Args:
            connection: in a transaction, which holds the locks.
            counts: by how much each is raised.

        Returns:
            Their rows afterwards.
        """
        at = now()
        # In key order, so that two transactions never wait for each other.
        rows: list[dict[str, Any]] = [
            dict(zip(_ADVANCED, (*chat, counts[chat], 0, at, at), strict=True))
            for chat in sorted(counts)
        ]
        return {
            (user_id, session_id, agent_id): ChatRow(*row)
            for user_id, session_id, agent_id, *row in self._advanced(connection, rows)
        }

    def _advanced(
        self, connection: AnyConnection, rows: Sequence[dict[str, Any]]
    ) -> Iterable[Row]:
        execute: Any = core(connection).execute
        if not self._returns_rows:
            execute(self._upsert, rows)
            keys = [[row[name] for name in KEY_COLUMNS] for row in rows]
            return cast("Iterable[Row]", execute(self._chats_of, {"keys": keys}))
        if self.family == "sqlite" or len(rows) == 1:
            # Core would take longer than SQLite itself, which is in this process.
            return [self._advance_last.rows(connection, row)[0] for row in rows]
        return cast("Iterable[Row]", execute(self._upsert, rows))

    @cached_property
    def _advance_last(self) -> Statement:
        return self._statement(self._upsert, _ADVANCED)

    @cached_property
    def _upsert(self) -> Any:
        # Of Core, which knows how each version of each server says it, and how to send many rows.
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
        return [columns[name] for name in (*KEY_COLUMNS, "number", "floor", "last")]

    # ------------------------------------------------------------------------------ entries

    def _set_up_entries(self) -> None:
        self.add_entries = self.compile(
            "INSERT INTO {entries} (chat, position, id, note, body) "
            "VALUES (:chat, :position, :id, :note, :body)"
        )
        # Apart from `read`: a plan that PostgreSQL keeps for both would be bad for one.
        self.read_all = self.compile(_READ, bound="", order="ASC", limit="")
        self.read = self.compile(_READ, bound=_AFTER, order="ASC", limit="")
        # Entries are counted, not positions: rows may have been deleted behind the store's back.
        # A limit in the index's own order bounds what any engine looks at, whatever it guesses.
        part = _READ if self.family == "sqlite" else _READ_PART
        self.read_first = self.compile(part, bound=_AFTER, order="ASC", limit="LIMIT :first")
        self.read_last = self.compile(part, bound=_AFTER, order="DESC", limit="LIMIT :newest")
        self.read_session = self.compile(
            "SELECT agent_id, chats.number, floor, position, body FROM {chats} AS chats "
            "JOIN {entries} AS entries ON entries.chat = chats.number "
            "WHERE user_id = :user_id AND session_id = :session_id ORDER BY agent_id, position"
        )
        # The position of the oldest of the newest `skip` + 1 messages.
        self.oldest_kept = self.compile(
            "SELECT position FROM {entries} WHERE chat = :chat AND note = 0 "
            "ORDER BY position DESC LIMIT 1 OFFSET :skip"
        )
        self.count_messages = self.compile(
            "SELECT count(*) FROM {entries} "
            "WHERE chat = :chat AND position <= :position AND note = 0"
        )
        self.drop_entries = self.compile(
            "DELETE FROM {entries} WHERE chat = :chat AND position <= :position"
        )

    def known(self, connection: AnyConnection, chat: int, ids: Sequence[Any]) -> Iterator[Row]:
        """Find which of these ids a chat holds: id, position, body."""
        for start in range(0, len(ids), IDS_AT_ONCE):
            part = ids[start : start + IDS_AT_ONCE]
            values = {"chat": chat, **{f"id_{i}": value for i, value in enumerate(part)}}
            yield from self._known(len(part)).rows(connection, values)

    def _known_among(self, count: int) -> Statement:
        return self.compile(
            "SELECT id, position, body FROM {entries} WHERE chat = :chat AND id IN ({ids})",
            ids=", ".join(f":id_{i}" for i in range(count)),
        )

    # ------------------------------------------------------------------------------ records

    def _set_up_records(self) -> None:
        self.add_record = self.compile(
            "INSERT INTO {records} (chat, number, id, body) VALUES (:chat, :number, :id, :body)"
        )
        self.newest_record = self.compile(
            "SELECT number, id FROM {records} WHERE chat = :chat ORDER BY number DESC LIMIT 1"
        )
        self.read_records = self.compile(_READ_RECORDS, ending="")
        self.read_newest_record = self.compile(_READ_RECORDS, ending="DESC LIMIT 1")
        self.drop_records = self.compile("DELETE FROM {records} WHERE chat = :chat")
