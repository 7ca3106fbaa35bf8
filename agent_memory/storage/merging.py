"""Merging the chats of one session into one sequence."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from agent_memory.messages import ConversationMessage

_Head: TypeAlias = tuple[datetime, str, ConversationMessage, AsyncIterator[ConversationMessage]]


def merge_chats(
    chats: Mapping[str, Iterable[ConversationMessage]],
) -> list[ConversationMessage]:
    """Merge the messages of several agents, each chat's own order kept.

    Args:
        chats: agent id -> that chat's messages in order of saving.

    Messages are taken by the running maximum of the timestamps within their chat (ties by
    agent id), so that a clock that went back never reorders one chat.
    """
    return [
        message
        for _, _, message in heapq.merge(
            *(_stamped(agent_id, messages) for agent_id, messages in chats.items()),
            key=lambda stamped: stamped[:2],
        )
    ]


def _stamped(
    agent_id: str, messages: Iterable[ConversationMessage]
) -> Iterable[tuple[datetime, str, ConversationMessage]]:
    latest: datetime | None = None
    for message in messages:
        latest = message.timestamp if latest is None else max(latest, message.timestamp)
        yield latest, agent_id, message


async def merge_streams(
    chats: Mapping[str, AsyncIterator[ConversationMessage]],
) -> AsyncIterator[ConversationMessage]:
    """Merge as :func:`merge_chats` does, holding one message of each chat at a time."""
    heads: list[_Head] = []
    for agent_id, stream in chats.items():
        message = await anext(stream, None)
        if message is not None:
            heads.append((message.timestamp, agent_id, message, stream))
    heapq.heapify(heads)
    while heads:
        latest, agent_id, message, stream = heads[0]
        yield message
        following = await anext(stream, None)
        if following is None:
            heapq.heappop(heads)
        else:
            stamp = max(latest, following.timestamp)
            heapq.heapreplace(heads, (stamp, agent_id, following, stream))
