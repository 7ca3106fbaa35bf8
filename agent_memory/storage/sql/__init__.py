"""Chats in SQLite, PostgreSQL, MariaDB or MySQL; see :class:`SqlChatStorage`."""

from agent_memory.errors import MissingDependencyError

try:
    from agent_memory.storage.sql.storage import SqlChatStorage
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in {"sqlalchemy", "greenlet"}:
        raise
    raise MissingDependencyError("sqlalchemy[asyncio]", "sql") from error

__all__ = ["SqlChatStorage"]
