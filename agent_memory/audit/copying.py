"""Copying chats from one store to another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs

from agent_memory.audit.chunks import Chunk
from agent_memory.audit.pages import pages
from agent_memory.records import ChatInfo, SummaryRecord
from agent_memory.storage.base import ChatStorage


@attrs.define
class Extent:
    """How much there is.

    Args:
        chats: how many chats.
        entries: how many messages and notes they hold.
    """

    chats: int = 0
    entries: int = 0


async def extent_of(
    storage: ChatStorage, user_id: str | None = None, session_id: str | None = None
) -> Extent:
    """Count the chats of a store, of a user or of a session, without reading them."""
    extent = Extent()
    async for info in storage.list_chats(user_id, session_id):
        extent.chats += 1
        extent.entries += info.entries
    return extent


async def chunks_of(
    storage: ChatStorage, user_id: str | None = None, session_id: str | None = None
) -> AsyncIterator[Chunk]:
    """Yield everything a store holds, for :class:`~agent_memory.audit.moving.Mover`."""
    done = 0
    async for info in storage.list_chats(user_id, session_id):
        async for chunk in chunks_of_chat(storage, info):
            done += len(chunk.entries)
            yield attrs.evolve(chunk, done=done)


async def chunks_of_chat(
    storage: ChatStorage, info: ChatInfo, *, after: int = 0
) -> AsyncIterator[Chunk]:
    """Yield what follows a position of a chat's log, and in the end its summaries."""
    floor = info.floor
    async for part in pages(storage, info.key, after=after, last=info.last):
        floor = part.floor
        yield Chunk(info.key, part.entries)
    records = await records_of(storage, info, floor)
    yield Chunk(info.key, (), summaries=records)


async def records_of(storage: ChatStorage, info: ChatInfo, floor: int) -> list[SummaryRecord]:
    """Return a chat's summary records that belong to the log as it is, oldest first."""
    store = storage.summaries()
    records = [] if store is None else await store.list_summaries(info.key)
    return [record for record in records if record.floor == floor]
