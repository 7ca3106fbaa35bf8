"""Threads as a list in a user interface shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import attrs

from agent_memory.conversation.run_notes import ThreadCounts, counts_since_note
from agent_memory.log import ChatInfo, Entry
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole
from agent_memory.providers import text_of
from agent_memory.storage.base import ChatStorage
from agent_memory.validation import checked_count

TITLE_LENGTH: Final = 80
"""Characters of a title."""

_FIRST: Final = 16  # entries among which the first user text is looked for at once
_NEWEST: Final = 16  # entries among which the newest note is looked for at once
_AT_ONCE: Final = 8  # threads that are looked at together
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@attrs.frozen
class ThreadInfo:
    """What a thread is about and how large it is.

    Args:
        key: which chat.
        title: the first line of the first user text, at most 80 characters; may be empty.
        runs: how many runs it has: contiguous blocks of one run id; neighbours without a run
            id are one block.
        messages: how many messages live in it.
        created_at: when its first message was stored; None if unknown.
        updated_at: when its newest message was stored; None if unknown.
    """

    key: ChatKey
    title: str
    runs: int
    messages: int
    created_at: datetime | None
    updated_at: datetime | None


async def list_threads(
    storage: ChatStorage, user_id: str | None, limit: int | None
) -> list[ThreadInfo]:
    """Return threads, the most recently written first.

    A thread's first and newest entries are read; the whole of it only where its newest entries
    hold no note of a run, or its first ones no text of the user's.
    """
    if limit is not None:
        checked_count(limit, "limit")
    infos = [info async for info in storage.list_chats(user_id)]
    infos.sort(key=lambda info: info.updated_at or _NEVER, reverse=True)
    listed: list[ThreadInfo] = []
    chosen = infos[:limit]
    for start in range(0, len(chosen), _AT_ONCE):
        some = chosen[start : start + _AT_ONCE]
        # Each is awaited, whichever fails, so that none goes on unobserved.
        found = await asyncio.gather(
            *(_describe(storage, info) for info in some), return_exceptions=True
        )
        for thread in found:
            if isinstance(thread, BaseException):
                raise thread
            listed.append(thread)
    return listed


async def _describe(storage: ChatStorage, info: ChatInfo) -> ThreadInfo:
    ids = info.key.user_id, info.key.session_id, info.key.agent_id
    first = await storage.read_log(*ids, first=_FIRST)
    newest = await storage.read_log(*ids, last=_NEWEST)
    title = title_of(first.entries)
    counts = counts_since_note(newest.entries, newest.floor)
    if counts is None or title is None:
        counts, title = await _read_through(storage, info.key)
    return ThreadInfo(
        info.key, title or "", counts.runs, counts.messages, info.created_at, info.updated_at
    )


async def _read_through(storage: ChatStorage, key: ChatKey) -> tuple[ThreadCounts, str | None]:
    counts, title = ThreadCounts(), None
    async for entry in storage.iter_log(key.user_id, key.session_id, key.agent_id):
        counts = counts.plus([entry])
        title = title_of([entry]) if title is None else title
    return counts, title


def title_of(entries: Iterable[Entry]) -> str | None:
    """Return the first line of the first user text among entries, None if there is none."""
    for entry in entries:
        if isinstance(entry, ConversationMessage) and entry.role == ParticipantRole.USER:
            lines = text_of(entry).strip().splitlines()
            if lines:
                return lines[0].strip()[:TITLE_LENGTH]
    return None
