"""Carrying summary records along with the chats they belong to."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from agent_memory.audit.landing import Landing
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import Covered, SummaryRecord
from agent_memory.storage.base import ChatStorage


async def carry_summaries(
    target: ChatStorage, key: ChatKey, records: Sequence[SummaryRecord], landing: Landing
) -> tuple[int, int]:
    """Store a chat's records in the target, their positions those that the messages have there.

    A record is left out when the target's chat holds other messages between those it speaks
    of, or a summary of its own: the view is then made anew from the raw log.

    Returns:
        How many are in the target now, and how many were left out.
    """
    store = target.summaries()
    if store is None or not records or not landing.is_copy:
        return 0, len(records)
    moved = [_moved(record, key, landing) for record in records]
    wanted = [record for record in moved if record is not None]
    known = [record.id for record in await store.list_summaries(key)]
    if known != [record.id for record in wanted[: len(known)]]:
        return 0, len(records)
    carried, newest = len(known), known[-1] if known else None
    for record in wanted[len(known) :]:
        if not await store.save_summary(key, record, replaces=newest):
            break
        newest, carried = record.id, carried + 1
    return carried, len(records) - carried


def _moved(record: SummaryRecord, key: ChatKey, landing: Landing) -> SummaryRecord | None:
    positions = landing.positions
    reach = positions.of(record.position)
    first, last = positions.of(record.covered.first), positions.of(record.covered.last)
    told = positions.of(record.told) if record.told else 0
    head, summary = (_landed(part, key, landing) for part in (record.head, record.summary))
    if reach is None or first is None or last is None or told is None:
        return None
    if head is None or summary is None:
        return None
    return attrs.evolve(
        record,
        position=reach,
        floor=landing.floor,
        covered=Covered(first, last, record.covered.count),
        known=positions.of(record.known) or 0,
        told=told,
        head=head,
        summary=summary,
    )


def _landed(
    messages: Sequence[ConversationMessage], key: ChatKey, landing: Landing
) -> tuple[ConversationMessage, ...] | None:
    landed: list[ConversationMessage] = []
    for message in messages:
        if message.position is None:  # made by a summarizer
            landed.append(message)
            continue
        place = landing.positions.of(message.position)
        if place is None:
            return None
        landed.append(message.placed(place, key.agent_id))
    return tuple(landed)
