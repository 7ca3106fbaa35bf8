"""Why a model saw what it saw: pure functions of the raw log, the view and the records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias

import attrs

from agent_memory.keys import ChatKey
from agent_memory.log import Entry, LogSlice, SummaryRecord, retracted_ids
from agent_memory.messages import ConversationMessage

__all__ = ["ExplainedMessage", "Explanation", "Standing"]

Standing: TypeAlias = Literal[
    "verbatim", "pinned", "covered", "held_back", "repaired", "retracted"
]
"""How a raw message stands in the view: shown as it is in its place, shown in the head, only
through a summary, held back since it answers a call that is not in the view (the next summarizer
is given it), left out or changed so that the provider accepts the view, or not shown any more
because a note in the log retracts it."""


@attrs.frozen
class ExplainedMessage:
    """One raw message and what became of it.

    Args:
        message: as it was stored.
        standing: how it stands in the view.
        summary_id: the id of the record whose summary it was first handed to, None while it
            is shown or when that record is not kept.
    """

    message: ConversationMessage
    standing: Standing
    summary_id: str | None


@attrs.frozen
class Explanation:
    """What the model sees of a chat, and why.

    Args:
        key: which chat.
        view: what the model sees now.
        messages: every living raw message, in order of saving.
        summaries: the summary records, oldest first; the last one is live.
    """

    key: ChatKey
    view: tuple[ConversationMessage, ...]
    messages: tuple[ExplainedMessage, ...]
    summaries: tuple[SummaryRecord, ...]

    def count(self, standing: Standing) -> int:
        """How many raw messages stand so."""
        return sum(explained.standing == standing for explained in self.messages)


def explain(
    key: ChatKey,
    view: Sequence[ConversationMessage],
    log: Sequence[Entry],
    records: Sequence[SummaryRecord],
    *,
    head: Sequence[ConversationMessage],
    covered_through: int,
    held_back: Collection[str],
) -> Explanation:
    """Say of each raw message how it stands in the view.

    Args:
        key: which chat.
        view: what the model sees.
        log: the whole log of the chat.
        records: its summary records, oldest first.
        head: the messages shown first.
        covered_through: the position up to which a summary stands for what is not shown.
        held_back: the ids of the messages after it that the view holds back.
    """
    retracted = retracted_ids(log)
    in_head = {message.id for message in head}
    shown = {message.id: message for message in view}

    def standing(message: ConversationMessage) -> Standing:
        if message.id in retracted:
            return "retracted"
        if message.id in in_head:
            return "pinned"
        if message.id in held_back:
            return "held_back"
        if shown.get(message.id) == message:
            return "verbatim"
        return "covered" if (message.position or 0) <= covered_through else "repaired"

    kept = [{message.id for message in (*r.head, *r.summary)} for r in records]
    reached = [record.position for record in records]

    def summary_of(message: ConversationMessage) -> str | None:
        # Each record reaches further than the one before it.
        for index in range(bisect_left(reached, message.position or 0), len(records)):
            if message.id not in kept[index]:
                return records[index].id
        return None

    explained: list[ExplainedMessage] = []
    for message in LogSlice(log).messages:
        stands = standing(message)
        by = summary_of(message) if stands == "covered" else None
        explained.append(ExplainedMessage(message, stands, by))
    return Explanation(key, tuple(view), tuple(explained), tuple(records))
