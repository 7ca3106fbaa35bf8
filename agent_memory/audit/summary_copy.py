"""Copying what refers to positions of a log: summary records, and hints of retractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.log import RETRACTED, Entry, Note, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage.base import ChatStorage

# In a retraction's data: a range of positions in which everything is hidden. Readers skip the
# range, so that a hint with wrong positions would hide other messages.
_HINT: Final = "hidden"


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
