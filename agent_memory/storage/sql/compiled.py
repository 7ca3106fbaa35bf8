"""Statements as text: Core writes each in the engine's dialect once.

It is then run as text, because Core's per-execution cost would dominate a lone save.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, cast

import attrs
from sqlalchemy import ColumnElement, Connection, Dialect, bindparam, insert
from sqlalchemy.sql.compiler import SQLCompiler

from agent_memory.messages import ChatKey
from agent_memory.storage.sql.schema import FAMILIES, KEY_COLUMNS, Tables

Values: TypeAlias = Mapping[str, Any]
"""What a statement is run with, by name."""

Row: TypeAlias = Sequence[Any]

KeyValues: TypeAlias = tuple[Any, Any, Any]
"""A chat's key as the engine keeps it; in the engine's order, which is that of the keys."""


class AnyConnection(Protocol):
    """What statements are run on: a ``Connection``, or a driver's own that looks like one."""

    def exec_driver_sql(self, statement: str, parameters: Any = ..., /) -> Any:
        """Execute a text; `parameters` are a list for several rows. Gives the driver's cursor."""


def many(connection: AnyConnection) -> Connection:
    """Return a server's connection as that of Core, which knows how to send many rows at once."""
    return cast("Connection", connection)


@attrs.frozen
class Insertion:
    """An ``INSERT`` of rows, with values in the order of the table's columns.

    Attributes:
        text: in the driver's dialect and parameter style.
        names: of the columns, where the driver takes values by name; else None.
    """

    text: str
    names: tuple[str, ...] | None

    def run(self, connection: AnyConnection, rows: list[Row]) -> None:
        """Insert rows, at least one."""
        names = self.names
        given: list[Any] = (
            list(rows) if names is None else [dict(zip(names, row, strict=True)) for row in rows]
        )
        connection.exec_driver_sql(self.text, given if len(given) > 1 else given[0])


@attrs.frozen
class Statement:
    """One statement as the driver takes it.

    Attributes:
        text: in the driver's dialect and parameter style.
        arrange: turns values by name into what the driver takes.
    """

    text: str
    arrange: Callable[[Values], Any]

    def run(self, connection: AnyConnection, values: Values) -> int:
        """Execute it and return how many rows it changed."""
        changed: int = connection.exec_driver_sql(self.text, self.arrange(values)).rowcount
        return changed

    def rows(self, connection: AnyConnection, values: Values) -> Sequence[Row]:
        """Execute it and return all rows."""
        found: Sequence[Row] = connection.exec_driver_sql(
            self.text, self.arrange(values)
        ).fetchall()
        return found

    def few_rows(
        self, connection: AnyConnection, values: Values, characters: int
    ) -> Sequence[Row] | None:
        """Execute it and return all rows; None if their last columns hold more `characters`."""
        rows: list[Row] = []
        for row in connection.exec_driver_sql(self.text, self.arrange(values)):
            characters -= len(row[-1] or "")
            if characters < 0:
                return None
            rows.append(row)
        return rows

    def row(self, connection: AnyConnection, values: Values) -> Row | None:
        """Execute it and return its first row, or None."""
        rows = self.rows(connection, values)
        return rows[0] if rows else None


class StatementSet:
    """What sets of statements share.

    Args:
        tables: where the chats are.
        dialect: of an engine that has connected once, so that it knows the server's version.
    """

    def __init__(self, tables: Tables, dialect: Dialect) -> None:
        self.tables = tables
        self.family = FAMILIES[dialect.name]
        self._dialect = dialect

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

    def _key_is(self) -> list[ColumnElement[bool]]:
        columns = self.tables.chats.c
        return [columns[name] == bind(columns[name], name) for name in KEY_COLUMNS]

    def _bigint(self, name: str) -> ColumnElement[int]:
        return bindparam(name, type_=self.tables.entries.c.position.type)

    def _in_chat(self, columns: Any) -> ColumnElement[bool]:
        matching: ColumnElement[bool] = columns.chat == self._bigint("chat")
        return matching

    def _adding(self, table: Any) -> Insertion:
        names = tuple(column.name for column in table.c)
        values = {column.name: bind(column, column.name) for column in table.c}
        compiled: Any = insert(table).values(values).compile(dialect=self._dialect)
        order = compiled.positiontup
        if order is not None and tuple(order) != names:
            raise TypeError(f"the dialect reorders the columns of {table.name}")
        return Insertion(compiled.string, names if order is None else None)

    def _compile(self, statement: Any, column_keys: Sequence[str] | None = None) -> Statement:
        compiled: SQLCompiler = statement.compile(dialect=self._dialect, column_keys=column_keys)
        return Statement(compiled.string, _arranger(compiled))


def bind(column: Any, name: str) -> ColumnElement[Any]:
    """Return a parameter of a column's type."""
    return bindparam(name, type_=column.type)


def _arranger(compiled: SQLCompiler) -> Callable[[Values], Any]:
    # Values that the statement itself holds, such as the 1 of LIMIT 1.
    literals = {
        name: value
        for name, value in compiled.params.items()
        if value is not None and not compiled.binds[name].required
    }
    order = compiled.positiontup
    if order is None:  # the driver takes values by name
        return lambda values: {**values, **literals}
    if not literals and len(order) > 1:
        return itemgetter(*order)
    names = tuple(order)
    return lambda values: tuple(
        literals[name] if name in literals else values[name] for name in names
    )
