"""Finding chats: from one chat's first item to the next chat's."""

from __future__ import annotations

from typing import Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.records import ChatInfo
from agent_memory.storage.dynamodb.calls import Calls
from agent_memory.storage.dynamodb.places import (
    END,
    LOG,
    prefix,
    session_prefix,
    split_sort_key,
)
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.tails import Tail, stamp

_KEYS: Final = ("pk", "sk")


@attrs.frozen
class Lister:
    """Finds chats.

    Args:
        calls: requests to the table.
        reader: reads the logs' ends.
    """

    calls: Calls
    reader: LogReader

    async def users(self) -> list[str]:
        """Return all user ids, sorted; this reads the whole table."""
        pages = self.calls.scan(only=_KEYS)
        users: set[str] = set()
        while not pages.done:
            users.update(item["pk"]["S"] for item in await pages.next())
        return sorted(users)

    async def key_after(
        self, user_id: str, session_id: str | None, previous: ChatKey | None
    ) -> ChatKey | None:
        """Return the chat that follows another one in a user's partition, or in a session."""
        stem = LOG if session_id is None else session_prefix(LOG, session_id)
        low = stem if previous is None else prefix(LOG, previous) + END
        pages = self.calls.query(user_id, low, stem + END, limit=1, only=_KEYS)
        while not pages.done:
            for item in await pages.next():
                return split_sort_key(user_id, item["sk"]["B"])[0]
        return None

    async def chat_after(
        self, user_id: str, session_id: str | None, previous: ChatKey | None
    ) -> ChatInfo | None:
        """Return what is to be told of the next chat with living entries."""
        key = await self.key_after(user_id, session_id, previous)
        while key is not None:
            tail = await self.reader.tail(key)
            if tail.last > tail.floor:
                return info(key, tail)
            key = await self.key_after(user_id, session_id, key)
        return None


def info(key: ChatKey, tail: Tail) -> ChatInfo:
    """What a log's end tells of its chat."""
    return ChatInfo(key, tail.floor, tail.last, stamp(tail.born), stamp(tail.at))
