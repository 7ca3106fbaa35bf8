"""The tables, making them, and the version of their layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import attrs
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT, VARBINARY
from sqlalchemy.schema import CreateTable, SchemaItem
from sqlalchemy.types import TypeEngine

from agent_memory.errors import InvalidRequestError, StorageError, StorageUnavailableError

LAYOUT_VERSION: Final = 1
"""The layout this release makes and reads; it stands in the layout table."""

KEY_COLUMNS: Final = ("user_id", "session_id", "agent_id")

Family: TypeAlias = Literal["sqlite", "postgresql", "mysql"]
"""Which engine it is, as far as statements differ; MariaDB is of MySQL's."""

FAMILIES: Final[Mapping[str, Family]] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
"""SQLAlchemy's dialect names, and the family of each."""

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
        """Every table, in the order of creation: `layout` comes last, when the rest exists."""
        return self.chats, self.entries, self.records, self.layout


def make_tables(prefix: str, schema: str | None) -> Tables:
    """Describe the tables of a store.

    Args:
        prefix: what the tables' names begin with; at most 40 letters, digits, ``_``, ``$``.
        schema: the schema (MySQL: the database) they are in; None for the connection's own.

    Raises:
        InvalidRequestError: one of them is not a plain name.
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


def _table(name: str, metadata: MetaData, *parts: SchemaItem) -> Table:
    return Table(name, metadata, *parts, mysql_engine="InnoDB", mariadb_engine="InnoDB")


def _chats(name: str, metadata: MetaData) -> Table:
    return _table(
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
    )


def _entries(name: str, metadata: MetaData) -> Table:
    return _table(
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
    )


def _records(name: str, metadata: MetaData) -> Table:
    return _table(
        name,
        metadata,
        _number("chat"),
        _number("number"),  # 1, 2, … within the chat
        Column("id", _id(), nullable=False),
        Column("body", _body(), nullable=False),
        PrimaryKeyConstraint("chat", "number"),
    )


def _layout(name: str, metadata: MetaData) -> Table:
    return _table(
        name,
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
        Column("version", Integer, nullable=False),
    )


Migration: TypeAlias = Callable[[Connection, Tables], None]

MIGRATIONS: Final[Mapping[int, Migration]] = {}
"""From each older layout to the next one. Version 1 is the first: there is nothing older."""

# "agent_memory" as a number: the advisory lock under which tables are made and migrated.
_LOCK: Final = int.from_bytes(b"agnt_mem", "big") >> 1
_LOCK_SECONDS: Final = 20
_LOCK_NAME: Final = "agent_memory_layout"


def is_ready(connection: Connection, tables: Tables) -> bool:
    """Whether the tables are there; checks that they are in the layout that this release knows.

    Raises:
        StorageError: they are of another version, or the database cannot hold every text.
    """
    _check_encoding(connection)
    if not _is_there(connection, tables) or _stored_version(connection, tables) is None:
        return False  # it is empty: another process is making the tables at this moment
    version = read_version(connection, tables)
    if version < LAYOUT_VERSION:
        raise StorageError(
            f"the tables {tables.chats.fullname!r} … have the older layout {version}; make a "
            f"backup, then call `await storage.migrate()` once for layout {LAYOUT_VERSION}"
        )
    return True


def create_tables(connection: Connection, tables: Tables) -> None:
    """Make what is missing; others may do so at the same moment."""
    with _locked(connection):
        # In this order: who finds the last one relies on the others.
        for table in tables.all:
            connection.execute(CreateTable(table, if_not_exists=True))
        if _stored_version(connection, tables) is None:
            row = tables.layout.insert().values(id=1, version=LAYOUT_VERSION)
            connection.execute(row)


def migrate(connection: Connection, tables: Tables, migrations: Mapping[int, Migration]) -> int:
    """Bring an older layout to the newest, step by step, in one transaction where DDL allows.

    Returns:
        The version afterwards.

    Raises:
        StorageError: it was made by a newer release, or there is no way from it.
    """
    if not _is_there(connection, tables):
        create_tables(connection, tables)
    with _locked(connection):
        version = read_version(connection, tables)
        while version < LAYOUT_VERSION:
            if version not in migrations:
                raise StorageError(f"there is no migration from layout {version}")
            migrations[version](connection, tables)
            version += 1
            connection.execute(update(tables.layout).values(version=version))
    return version


def read_version(connection: Connection, tables: Tables) -> int:
    """Return the version of the layout that is stored.

    Raises:
        StorageError: none is, or that of a newer release.
    """
    version = _stored_version(connection, tables)
    if version is None:
        raise StorageError(
            f"the table {tables.layout.fullname!r} is empty: these are not tables of this "
            "library; choose another table_prefix"
        )
    if version > LAYOUT_VERSION:
        raise StorageError(
            f"the tables {tables.chats.fullname!r} … have layout {version}, made by a newer "
            f"release; this one knows up to {LAYOUT_VERSION}. Upgrade agent-memory-storage"
        )
    return version


def _stored_version(connection: Connection, tables: Tables) -> int | None:
    version: Any = connection.execute(select(tables.layout.c.version)).scalar()
    return None if version is None else int(version)


def _is_there(connection: Connection, tables: Tables) -> bool:
    return inspect(connection).has_table(tables.layout.name, schema=tables.layout.schema)


def _check_encoding(connection: Connection) -> None:
    if FAMILIES[connection.dialect.name] != "postgresql":
        return
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise StorageError(
            f"the database has the encoding {encoding}, which cannot hold every text; use one "
            "made with ENCODING 'UTF8'"
        )


@contextmanager
def _locked(connection: Connection) -> Generator[None]:
    # SQLite's transaction is a lock already. On PostgreSQL two CREATE TABLE IF NOT EXISTS at once
    # may fail; its advisory lock ends with the transaction. MariaDB's has to be released.
    family = FAMILIES[connection.dialect.name]
    if family == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    if family != "mysql":
        yield
        return
    got = connection.exec_driver_sql(f"SELECT GET_LOCK('{_LOCK_NAME}', {_LOCK_SECONDS})")
    if got.scalar() != 1:
        raise StorageUnavailableError("another process is making or migrating the tables")
    try:
        yield
        connection.exec_driver_sql("COMMIT")  # whoever gets the lock next must see what was made
    finally:
        connection.exec_driver_sql(f"SELECT RELEASE_LOCK('{_LOCK_NAME}')")
