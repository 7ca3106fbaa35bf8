"""Copying chats from one store to another, and comparing the two.

What names positions of a log, summary records and hints of retractions, is copied only where
positions are the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import attrs

from agent_memory.audit.chunks import Chunk
from agent_memory.audit.findings import Finding, is_unreadable
from agent_memory.audit.log_pages import pages
from agent_memory.log import RETRACTED, ChatInfo, Entry, Note, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage.base import ChatStorage

# In a retraction's data: a range of positions in which everything is hidden. Readers skip the
# range, so that a hint with wrong positions would hide other messages.
_HINT: Final = "hidden"


async def chunks_of(
    storage: ChatStorage, user_id: str | None = None, session_id: str | None = None
) -> AsyncIterator[Chunk]:
    """Yield everything a store holds, for :class:`~agent_memory.audit.chat_import.Importer`."""
    done = 0
    async for info in storage.list_chats(user_id, session_id):
        floor = info.floor
        async for part in pages(storage, info.key, last=info.last):
            floor = part.floor
            done += len(part.entries)
            yield Chunk(info.key, part.entries, done=done)
        yield Chunk(info.key, (), summaries=await records_of(storage, info, floor), done=done)


async def records_of(storage: ChatStorage, info: ChatInfo, floor: int) -> list[SummaryRecord]:
    """Return a chat's summary records that belong to the log as it is, oldest first."""
    store = storage.summaries()
    records = [] if store is None else await store.list_summaries(info.key)
    # A record from before a trim covers messages that are gone; no view uses it any more.
    return [record for record in records if record.floor == floor]


async def missing_in(
    target: ChatStorage,
    source: ChatStorage,
    user_id: str | None = None,
    session_id: str | None = None,
    *,
    on_progress: Callable[[int], object] = abs,
) -> AsyncIterator[Finding]:
    """Compare every readable entry of a source with a target: all fields, and their order.

    The target may hold additional entries anywhere.

    Args:
        target: the copy.
        source: the original.
        user_id, session_id: of which user or session; all by default.
        on_progress: called after each page with the number of entries compared.

    Yields:
        For each chat, the first entry that the target does not hold as the source does.
    """
    async for info in source.list_chats(user_id, session_id):
        found = await _first_difference(target, source, info, on_progress)
        if found is not None:
            yield found


async def _first_difference(
    target: ChatStorage, source: ChatStorage, info: ChatInfo, on_progress: Callable[[int], object]
) -> Finding | None:
    key = info.key
    others = _entries(target, key)
    async for part in pages(source, key, last=info.last):
        for entry in part.entries:
            if is_unreadable(entry):
                continue
            place = f"the chat of {key}, position {entry.position}"
            # Both logs are read side by side, so that memory stays bounded however long they
            # are.
            async for other in others:
                if other.id == entry.id:
                    break
            else:
                return Finding(
                    place, f"{entry.id!r} is missing in the target, or in another place"
                )
            if without_hint(other) != without_hint(entry):
                return Finding(place, f"{entry.id!r} is another one in the target")
        on_progress(len(part.entries))
    return None


async def _entries(storage: ChatStorage, key: ChatKey) -> AsyncIterator[Entry]:
    async for part in pages(storage, key):
        for entry in part.entries:
            yield entry


async def save_summaries(
    target: ChatStorage, key: ChatKey, records: Sequence[SummaryRecord], floor: int | None
) -> int:
    """Store a chat's records in the target, unless it has summaries of its own.

    Args:
        target: the store.
        key: which chat.
        records: the source's, oldest first.
        floor: of the chat in the target; None if messages have other positions there.

    Returns:
        How many of the records are in the target now.
    """
    store = target.summaries()
    if store is None or any(record.floor != floor for record in records):
        return 0
    known = [record.id for record in await store.list_summaries(key)]
    if known != [record.id for record in records[: len(known)]]:
        return 0
    for record in records[len(known) :]:
        if not await store.save_summary(key, record, replaces=known[-1] if known else None):
            break
        known.append(record.id)
    return len(known)


def has_hint(entry: Entry) -> bool:
    """Whether an entry is a retraction with a hint."""
    return isinstance(entry, Note) and entry.kind == RETRACTED and _HINT in entry.data


def without_hint(entry: Entry) -> Entry:
    """Return an entry without its hint, in which two copies of it may differ."""
    if not isinstance(entry, Note) or not has_hint(entry):
        return entry
    data = {name: value for name, value in entry.data.items() if name != _HINT}
    bare = attrs.evolve(entry, data=data)
    if entry.position is None or entry.agent_id is None:
        return bare
    return bare.placed(entry.position, entry.agent_id)
