"""How large a message the engine takes."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from sqlalchemy import Connection

from agent_memory.storage.sql.compiling import FAMILIES

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
