"""Chats in SQLite, PostgreSQL, MariaDB or MySQL; see :class:`SqlChatStorage`."""

from agent_memory.errors import MissingDependencyError

try:
    import sqlalchemy.ext.asyncio  # noqa: F401  only whether it is there
except ImportError as error:
    raise MissingDependencyError("sqlalchemy[asyncio]", "sql") from error

from agent_memory.storage.sql.storage import SqlChatStorage

__all__ = ["SqlChatStorage"]
