"""Making the tables, and checking and migrating the version of their layout."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, inspect, select, update
from sqlalchemy.schema import CreateTable

from agent_memory.errors import StorageError, StorageUnavailableError
from agent_memory.storage.sql.compiling import FAMILIES
from agent_memory.storage.sql.schema import LAYOUT_VERSION, Tables

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
        return False  # an empty one is being made by somebody else at this moment
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
        # In this order: the last one tells that the others are there.
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
            f"the table {tables.layout.fullname!r} is empty: these are no tables of this "
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
    # SQLite's transaction is a lock already. CREATE TABLE IF NOT EXISTS is none on PostgreSQL,
    # whose lock ends with the transaction; MariaDB's has to be given back.
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
