"""From SQLAlchemy Core to driver-level text.

Core writes each statement in the engine's dialect once; it is then run as text, because Core's
per-execution cost would dominate a lone save.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

import attrs
from sqlalchemy import ColumnElement, Connection, Dialect, bindparam, insert
from sqlalchemy.sql.compiler import SQLCompiler

from agent_memory.messages import ChatKey
from agent_memory.storage.sql.schema import KEY_COLUMNS, Tables

Values: TypeAlias = Mapping[str, Any]
"""What a statement is run with, by name."""

Row: TypeAlias = Sequence[Any]

Family: TypeAlias = Literal["sqlite", "postgresql", "mysql"]
"""Which engine it is, as far as statements differ; MariaDB is of MySQL's."""

FAMILIES: Final[Mapping[str, Family]] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
"""SQLAlchemy's dialect names, and the family of each."""


@attrs.frozen
class Statement:
    """One statement as the driver takes it.

    Attributes:
        text: in the driver's dialect and parameter style.
        arrange: turns values by name into what the driver takes.
    """

    text: str
    arrange: Callable[[Values], Any]

    def run(self, connection: Connection, values: Values) -> int:
        """Execute it and return how many rows it changed."""
        return connection.exec_driver_sql(self.text, self.arrange(values)).rowcount

    def rows(self, connection: Connection, values: Values) -> Sequence[Row]:
        """Execute it and return all rows."""
        return connection.exec_driver_sql(self.text, self.arrange(values)).fetchall()

    def row(self, connection: Connection, values: Values) -> Row | None:
        """Execute it and return its first row, or None."""
        rows = self.rows(connection, values)
        return rows[0] if rows else None

    def run_many(self, connection: Connection, many: Sequence[Values]) -> None:
        """Execute it once for each of `many`, at least one."""
        rows = list(map(self.arrange, many))
        connection.exec_driver_sql(self.text, rows if len(rows) > 1 else rows[0])


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

    def key_values(self, key: ChatKey) -> dict[str, Any]:
        """Return a key as values of the key columns."""
        return {
            "user_id": self.id_value(key.user_id),
            "session_id": self.id_value(key.session_id),
            "agent_id": self.id_value(key.agent_id),
        }

    def _key_is(self) -> list[ColumnElement[bool]]:
        columns = self.tables.chats.c
        return [columns[name] == bind(columns[name], name) for name in KEY_COLUMNS]

    def _bigint(self, name: str) -> ColumnElement[int]:
        return bindparam(name, type_=self.tables.entries.c.position.type)

    def _in_chat(self, columns: Any) -> ColumnElement[bool]:
        matching: ColumnElement[bool] = columns.chat == self._bigint("chat")
        return matching

    def _adding(self, table: Any) -> Statement:
        values = {column.name: bind(column, column.name) for column in table.c}
        return self._compile(insert(table).values(values))

    def _compile(self, statement: Any) -> Statement:
        compiled: SQLCompiler = statement.compile(dialect=self._dialect)
        return Statement(compiled.string, _arranger(compiled))


def bind(column: Any, name: str) -> ColumnElement[Any]:
    """Return a parameter of a column's type."""
    return bindparam(name, type_=column.type)


def _arranger(compiled: SQLCompiler) -> Callable[[Values], Any]:
    # Values that the statement itself holds, such as the 1 of LIMIT 1.
    literals = {name: value for name, value in compiled.params.items() if value is not None}
    order = compiled.positiontup
    if order is None:  # the driver takes values by name
        return lambda values: {**values, **literals}
    if not literals and len(order) > 1:
        return itemgetter(*order)
    names = tuple(order)
    return lambda values: tuple(
        literals[name] if name in literals else values[name] for name in names
    )
