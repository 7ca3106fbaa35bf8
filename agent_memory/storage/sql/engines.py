"""Making engines for a store that was given a URL, and what they take."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
from sqlalchemy import URL, Connection, Engine, NullPool, StaticPool, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agent_memory.errors import InvalidRequestError
from agent_memory.storage.sql.schema import FAMILIES
from agent_memory.storage.sql.sqlite import IDENTITY, DatabaseFile
from agent_memory.storage.sql.urls import Target

Durability: TypeAlias = Literal["full", "normal"]
"""What a commit on SQLite waits for."""

_WAL_RETRY: Final = 0.01  # seconds, at the least, between attempts to switch to WAL


@attrs.frozen
class EngineOptions:
    """How a store's engine is to be made.

    Args:
        timeout: seconds to wait for a lock, a connection, or the end of one statement.
        durability: for SQLite; ``"full"`` survives a power cut, with ``"normal"`` the last
            commits may be lost in one (https://www.sqlite.org/pragma.html#pragma_synchronous).
        more: passed on to SQLAlchemy's ``create_engine`` or ``create_async_engine``.
    """

    timeout: float
    durability: Durability
    more: Mapping[str, Any]

    def merged(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """Return our arguments with the caller's in front; ``connect_args`` are merged too."""
        connect_args = {**ours.get("connect_args", {}), **self.more.get("connect_args", {})}
        return {**ours, **self.more, "connect_args": connect_args}


def make_sqlite_engine(
    target: Target, options: EngineOptions
) -> tuple[Engine, DatabaseFile | None]:
    """Make a blocking engine for SQLite that leaves BEGIN to the store.

    Returns:
        The engine, and the file that its connections open; None for a database in memory.

    Raises:
        InvalidRequestError: an engine option is unknown.
    """
    if target.url is None:
        raise TypeError("an engine is made from a URL")
    arguments = options.merged(
        {
            "poolclass": StaticPool if target.in_memory else NullPool,
            "hide_parameters": True,  # they are what people wrote
            "connect_args": {
                "timeout": options.timeout,
                "isolation_level": None,  # BEGIN and COMMIT are ours
                "check_same_thread": False,
            },
        }
    )
    engine: Engine = _checked(create_engine, target.url, arguments)
    file = None
    if target.path is not None:
        file = DatabaseFile(target.path, create=target.url.query.get("mode", "rwc") == "rwc")
        _watch(engine, file)
    _set_up(engine, options, file)
    return engine, file


def make_async_engine(target: Target, options: EngineOptions) -> tuple[AsyncEngine, str | None]:
    """Make an async engine for PostgreSQL or MySQL.

    Returns:
        The engine, and the isolation level to set for transactions, where the engine's own is
        autocommit: on PostgreSQL most calls are one statement, and switching is not for free.

    Raises:
        InvalidRequestError: an engine option is unknown.
    """
    if target.url is None:
        raise TypeError("an engine is made from a URL")
    ours: dict[str, Any] = {
        "hide_parameters": True,
        "pool_timeout": options.timeout,
        "pool_size": 10,
        # MySQL's default, REPEATABLE READ, also locks the gaps beside rows, so that saves to
        # different chats may wait for each other.
        # https://dev.mysql.com/doc/refman/8.4/en/innodb-transaction-isolation-levels.html
        "isolation_level": "READ COMMITTED",
        # Transactors end every transaction themselves; a rollback to be sure is a round trip.
        "pool_reset_on_return": None,
        "connect_args": {
            **_connect_args(target.url.get_driver_name(), options.timeout),
            **target.connect_args,
        },
    }
    merged = options.merged(ours)
    isolation: str | None = None
    if target.family == "postgresql":
        isolation, merged["isolation_level"] = merged["isolation_level"], "AUTOCOMMIT"
    engine: AsyncEngine = _checked(create_async_engine, target.url, merged)
    return engine, isolation


def _connect_args(driver: str, timeout: float) -> dict[str, Any]:
    if driver == "asyncpg":
        return {"timeout": timeout, "command_timeout": timeout}
    if driver == "asyncmy":
        settings = (
            f"innodb_lock_wait_timeout = {max(1, round(timeout))}",
            "sql_mode = 'STRICT_ALL_TABLES'",  # nothing is cut short in silence
        )
        return {
            "connect_timeout": timeout,
            "read_timeout": timeout + 1,
            "init_command": f"SET {', '.join(settings)}",
        }
    return {}


def _checked(make: Any, url: URL, arguments: Mapping[str, Any]) -> Any:
    try:
        return make(url, **arguments)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"engine_options, or options of the URL: {error}") from error


def _watch(engine: Engine, file: DatabaseFile) -> None:
    @event.listens_for(engine, "do_connect")
    def prepare(_dialect: object, record: Any, _args: object, _kwargs: object) -> None:
        file.prepare()
        record.info[IDENTITY] = file.identity()


def _set_up(engine: Engine, options: EngineOptions, file: DatabaseFile | None) -> None:
    synchronous = options.durability.upper()

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, record: Any) -> None:
        try:
            cursor = connection.cursor()
            _switch_to_wal(cursor, options.timeout)
            cursor.execute(f"PRAGMA synchronous = {synchronous}")
            cursor.execute("PRAGMA secure_delete = ON")  # deleted text is overwritten
            if file is not None:
                cursor.execute("PRAGMA schema_version")  # a read: SQLite opens the WAL only then
                _note_identity(file, record)
            cursor.close()
        except BaseException:
            connection.close()
            raise


def _note_identity(file: DatabaseFile, record: Any) -> None:
    # SQLite opened the database between two looks at its name. If both found the same file, that
    # is the one that it opened.
    before, opened = record.info[IDENTITY], file.identity()
    file.check((before[0], opened[1]))
    record.info[IDENTITY] = opened


def _switch_to_wal(cursor: Any, timeout: float) -> None:
    """Switch to write-ahead logging, so that readers and the writer do not block each other.

    The busy timeout does not cover the switch itself, which another process may be making.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            code = error.sqlite_errorcode & 0xFF
            busy = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise
        time.sleep(_WAL_RETRY * random.uniform(1, 3))  # noqa: S311  jitter


_SQLITE_LENGTH: Final = 1_000_000_000
"""The default of SQLITE_MAX_LENGTH (https://www.sqlite.org/limits.html)."""

_POSTGRESQL_LENGTH: Final = 1_000_000_000
"""A field holds at most 1 GB (https://www.postgresql.org/docs/current/limits.html)."""

_ROOM: Final = 16_384
"""Bytes left for the rest of a row or statement: ids, numbers, words."""


def max_body_bytes(connection: Connection) -> int:
    """Return the largest body, in bytes of UTF-8 as it is sent, that a row may hold."""
    family = FAMILIES[connection.dialect.name]
    if family == "postgresql":
        return _POSTGRESQL_LENGTH - _ROOM
    if family == "sqlite":
        driver: Any = connection.connection.driver_connection
        if isinstance(driver, sqlite3.Connection):
            return driver.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) - _ROOM
        return _SQLITE_LENGTH - _ROOM
    packet: Any = connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar()
    return int(packet) - _ROOM
