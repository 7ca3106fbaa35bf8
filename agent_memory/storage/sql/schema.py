"""The tables: one row a chat, one row an entry of its log, one row a summary record."""

from __future__ import annotations

import re
from typing import Any, Final

import attrs
from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import LONGTEXT, VARBINARY
from sqlalchemy.types import TypeEngine

from agent_memory.errors import InvalidRequestError

LAYOUT_VERSION: Final = 1
"""The layout this release makes and reads; it stands in the layout table."""

KEY_COLUMNS: Final = ("user_id", "session_id", "agent_id")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,39}")


@attrs.frozen
class Tables:
    """The tables of one store.

    Attributes:
        chats: floor and last position of each chat, under a number that its rows carry.
        entries: messages and notes, by (chat, position).
        records: summary records, in the order they were made.
        layout: one row with the version of the layout.
    """

    chats: Table
    entries: Table
    records: Table
    layout: Table

    @property
    def all(self) -> tuple[Table, ...]:
        """Every table, in the order of creation: `layout` tells that the rest is there."""
        return self.chats, self.entries, self.records, self.layout


def make_tables(prefix: str, schema: str | None) -> Tables:
    """Describe the tables of a store.

    Args:
        prefix: what the tables' names begin with; at most 40 letters, digits, ``_``, ``$``.
        schema: the schema (MySQL: the database) they are in; None for the connection's own.

    Raises:
        InvalidRequestError: one of them is no plain name.
    """
    _check_name("table_prefix", prefix)
    if schema is not None:
        _check_name("schema", schema)
    metadata = MetaData(schema=schema)
    return Tables(
        _chats(f"{prefix}chats", metadata),
        _entries(f"{prefix}entries", metadata),
        _records(f"{prefix}records", metadata),
        _layout(f"{prefix}layout", metadata),
    )


def _check_name(name: str, value: object) -> None:
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InvalidRequestError(
            f"{name} must be 1 to 40 ASCII letters, digits, '_' or '$', not beginning with a "
            f"digit; got {value!r}"
        )


def _id() -> TypeEngine[Any]:
    """A type that compares byte by byte: ``A`` is not ``a``, and trailing spaces count."""
    return (
        Text()
        .with_variant(Text(collation="C"), "postgresql")
        .with_variant(VARBINARY(255), "mysql", "mariadb")
    )


def _body() -> TypeEngine[Any]:
    long = LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return Text().with_variant(long, "mysql", "mariadb")


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, autoincrement=False)


def _chats(name: str, metadata: MetaData) -> Table:
    return Table(
        name,
        metadata,
        # On SQLite only INTEGER makes the number an alias of the row id.
        Column(
            "number",
            BigInteger().with_variant(Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        *(Column(column, _id(), nullable=False) for column in KEY_COLUMNS),
        _number("floor"),
        _number("last"),
        _number("created_at"),  # microseconds since 1970, UTC
        _number("updated_at"),
        UniqueConstraint(*KEY_COLUMNS, name=f"{name}_key"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _entries(name: str, metadata: MetaData) -> Table:
    return Table(
        name,
        metadata,
        _number("chat"),
        _number("position"),
        Column("id", _id(), nullable=False),
        Column("note", SmallInteger, nullable=False),  # 1: a note, which no `keep` counts
        Column("body", _body(), nullable=False),
        PrimaryKeyConstraint("chat", "position"),
        # The id first: new ones sort by time, so that a group of saves to many chats touches one
        # page of this index, not one for each chat.
        UniqueConstraint("id", "chat", name=f"{name}_id"),
        # Not WITHOUT ROWID on SQLite: rows above 1,000 bytes would spill into pages of their own
        # (twice the file for messages of 1,500 bytes), and a group of saves to many chats would
        # touch a page of each.
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _records(name: str, metadata: MetaData) -> Table:
    return Table(
        name,
        metadata,
        _number("chat"),
        _number("number"),  # 1, 2, … within the chat
        Column("id", _id(), nullable=False),
        Column("body", _body(), nullable=False),
        PrimaryKeyConstraint("chat", "number"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def _layout(name: str, metadata: MetaData) -> Table:
    return Table(
        name,
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
        Column("version", Integer, nullable=False),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )
