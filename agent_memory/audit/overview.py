"""What chats there are, told in a line each."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import attrs

from agent_memory.audit.pages import pages
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole
from agent_memory.providers import text_of
from agent_memory.records import ChatInfo
from agent_memory.storage.base import ChatStorage
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_READ_WHOLE: Final = 2_000
_SAMPLE: Final = 500
_TITLE: Final = 200


@attrs.frozen(kw_only=True)
class ChatLine:
    """What is told of a chat.

    Args:
        key: which chat.
        title: what was first asked in it, cut off; empty if nothing was.
        messages: how many it holds; of a chat that was not read whole, notes are among them.
        tokens: of all of them, estimated; None if the chat was not read.
        is_sampled: whether `tokens` is projected from the oldest and newest messages.
        summaries: how many summary records it has; None if that was not asked.
        created_at, updated_at: when its first and newest entries were stored, if known.
    """

    key: ChatKey
    title: str = ""
    messages: int
    tokens: int | None = None
    is_sampled: bool = False
    summaries: int | None = None
    created_at: datetime | None
    updated_at: datetime | None


async def newest_chats(
    storage: ChatStorage, user_id: str | None, session_id: str | None, most: int
) -> list[ChatInfo]:
    """Return the chats that something was stored in last, newest first.

    Every chat is listed, none is read; memory is bounded by `most`.
    """
    heap: list[tuple[datetime, int, ChatInfo]] = []
    count = 0
    async for info in storage.list_chats(user_id, session_id):
        count += 1
        item = (info.updated_at or _LONG_AGO, -count, info)
        if len(heap) < most:
            heapq.heappush(heap, item)
        else:
            heapq.heappushpop(heap, item)
    return [info for _, _, info in sorted(heap, reverse=True)]


def brief(info: ChatInfo) -> ChatLine:
    """Tell of a chat what can be told without reading it."""
    return ChatLine(
        key=info.key,
        messages=info.entries,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


async def line_of(
    storage: ChatStorage, info: ChatInfo, counter: TokenCounter | None = None
) -> ChatLine:
    """Read a chat, a long one in part, and tell of it."""
    counted = _Counted(counter or HeuristicTokenCounter())
    is_long = info.entries > _READ_WHOLE
    async for part in _parts(storage, info, is_long=is_long):
        for message in part:
            counted.add(message)
    store = storage.summaries()
    records = [] if store is None else await store.list_summaries(info.key)
    share = info.entries / max(1, counted.messages) if is_long else 1
    return attrs.evolve(
        brief(info),
        title=counted.title,
        messages=info.entries if is_long else counted.messages,
        tokens=int(counted.tokens * share),
        is_sampled=is_long,
        summaries=len(records),
    )


async def _parts(
    storage: ChatStorage, info: ChatInfo, *, is_long: bool
) -> AsyncIterator[list[ConversationMessage]]:
    if not is_long:
        async for page in pages(storage, info.key, last=info.last):
            yield page.messages
        return
    yield (await storage._read(info.key, first=_SAMPLE)).messages
    yield (await storage._read(info.key, last=_SAMPLE)).messages


@attrs.define
class _Counted:
    counter: TokenCounter
    messages: int = 0
    tokens: int = 0
    title: str = ""
    is_asked: bool = False

    def add(self, message: ConversationMessage) -> None:
        self.messages += 1
        self.tokens += self.counter.count(message)
        if self.is_asked or message.role is ParticipantRole.SYSTEM:
            return
        text = text_of(message)[:_TITLE]
        self.is_asked = message.role is ParticipantRole.USER and bool(text.strip())
        if self.is_asked or not self.title:
            self.title = text
