"""Finding chats: from one chat's first item to the next chat's."""

from __future__ import annotations

from typing import Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.records import ChatInfo
from agent_memory.storage.dynamodb.log_end import LogEnd, from_milliseconds
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.table_client import TableClient
from agent_memory.storage.dynamodb.table_layout import (
    END,
    HEADER,
    LOG,
    LogItem,
    from_attributes,
    prefix,
    session_prefix,
    split_sort_key,
)

_KEYS: Final = ("pk", "sk")
_PAGE: Final = 8  # items; more would read much of a long chat for nothing


@attrs.frozen
class Lister:
    """Finds chats.

    Args:
        table: sends the requests.
        reader: reads the logs' ends.
    """

    table: TableClient
    reader: LogReader

    async def users(self) -> list[str]:
        """Return all user ids, sorted; this reads the whole table."""
        pages = self.table.scan(only=_KEYS)
        users: set[str] = set()
        while not pages.done:
            users.update(item["pk"]["S"] for item in await pages.next())
        return sorted(users)

    async def key_after(self, user_id: str, previous: ChatKey | None) -> ChatKey | None:
        """Return the chat, living or not, that follows another one in a user's partition."""
        low, high = _range(None, previous)
        pages = self.table.query(user_id, low, high, limit=1, only=_KEYS)
        while not pages.done:
            for item in await pages.next():
                return split_sort_key(user_id, item["sk"]["B"])[0]
        return None

    async def chats_after(
        self, user_id: str, session_id: str | None, previous: ChatKey | None
    ) -> tuple[list[ChatInfo], ChatKey | None]:
        """Return what is to be told of the next few chats with living entries.

        Short chats are seen whole, several with one query; of a long one only the beginning,
        so that its end takes another query.

        Returns:
            Possibly none, and the chat to go on after; None when there are no more chats.
        """
        as_of_ms = self.reader.now()
        low, high = _range(session_id, previous)
        pages = self.table.query(user_id, low, high, limit=_PAGE, only=HEADER)
        chats: dict[ChatKey, list[LogItem]] = {}
        for item in await pages.next():
            key, _ = split_sort_key(user_id, item["sk"]["B"])
            chats.setdefault(key, []).append(from_attributes(item))
        if not chats:
            return [], None
        *_, last = chats
        infos: list[ChatInfo] = []
        for key, items in chats.items():
            if key == last and not pages.done:
                end = await self.reader.end(key)
            else:
                end = await self.reader.end_of(key, items, as_of_ms)
            if end.last > end.floor:
                infos.append(_info(key, end))
        return infos, None if pages.done else last


def _range(session_id: str | None, previous: ChatKey | None) -> tuple[bytes, bytes]:
    stem = LOG if session_id is None else session_prefix(LOG, session_id)
    return stem if previous is None else prefix(LOG, previous) + END, stem + END


def _info(key: ChatKey, end: LogEnd) -> ChatInfo:
    """What a log's end tells of its chat."""
    return ChatInfo(
        key,
        end.floor,
        end.last,
        from_milliseconds(end.created_ms),
        from_milliseconds(end.written_ms),
    )
