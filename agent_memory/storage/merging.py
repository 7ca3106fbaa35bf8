"""Merging the chats of one session into one sequence."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

# Messages, notes, and what an auditor puts in their place: anything with a `timestamp`. No
# protocol says so, because pyright takes the attribute of an attrs class for its converter.
T = TypeVar("T", bound=Any)


def merge_chats(chats: Mapping[str, Iterable[T]]) -> list[T]:
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


def _stamped(agent_id: str, messages: Iterable[T]) -> Iterable[tuple[datetime, str, T]]:
    latest: datetime | None = None
    for message in messages:
        moment: datetime = message.timestamp
        latest = moment if latest is None else max(latest, moment)
        yield latest, agent_id, message


async def merge_streams(chats: Mapping[str, AsyncIterator[T]]) -> AsyncIterator[T]:
    """Merge as :func:`merge_chats` does, holding one message of each chat at a time."""
    heads: list[tuple[datetime, str, T, AsyncIterator[T]]] = []
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
