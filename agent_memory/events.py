"""The events that ``on_event`` receives."""

from __future__ import annotations

import attrs

from agent_memory.keys import ChatKey
from agent_memory.log import SummaryRecord
from agent_memory.messages import ConversationMessage

__all__ = [
    "Activated",
    "Compacted",
    "CompactionFailed",
    "CompactionRequest",
    "CompactionSkipped",
    "Event",
    "Evicted",
]


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened to one chat's view.

    Args:
        key: which chat.
    """

    key: ChatKey


@attrs.frozen(kw_only=True)
class Activated(Event):
    """A fetch found more than the trigger allows; from now on the chat has a buffer.

    Args:
        messages: how many messages the view has now, its head excluded.
        restored: whether a stored summary was taken over, so that no model was asked.
    """

    messages: int
    restored: bool


@attrs.frozen(kw_only=True)
class Compacted(Event):
    """A summary took the place of the older messages in the view.

    Args:
        record: the summary and what it covers.
        messages_before: messages in what was summarized and kept, head excluded.
        messages_after: the same afterwards.
        clipped: whether the summary was longer than ``max_summary_tokens`` and cut.
        unpinned: pinned messages that became ordinary since the head was over
            ``max_head_tokens``.
        adopted: whether another worker's summary was taken over instead of our own.
        duration: seconds, the summarizer's time included.
    """

    record: SummaryRecord
    messages_before: int
    messages_after: int
    clipped: bool
    unpinned: int
    adopted: bool
    duration: float


@attrs.frozen(kw_only=True)
class CompactionFailed(Event):
    """The summarizer failed, or returned something unusable. The view is unchanged.

    Args:
        error: why.
        messages: messages in the view, head excluded.
        retry_after: new messages to wait for before the next attempt.
        duration: seconds, the summarizer's time included.
    """

    error: Exception
    messages: int
    retry_after: int
    duration: float


@attrs.frozen(kw_only=True)
class CompactionSkipped(Event):
    """There is no new summary although nothing failed. The view is unchanged.

    Args:
        reason: ``"nothing_to_gain"``, ``"more_tokens"`` (the summary has more tokens than what it
            would replace), ``"not_yet"`` (the summarizer said so; a conversation has no event
            for that), ``"vetoed"``, ``"refused"`` (it summarized the run still being written),
            or ``"superseded"`` (the chat was deleted, trimmed or summarized by another worker).
        messages: messages in the view, head excluded.
        retry_after: new messages to wait for before the next attempt.
        duration: seconds, the summarizer's time included.
    """

    reason: str
    messages: int
    retry_after: int
    duration: float


@attrs.frozen(kw_only=True)
class Evicted(Event):
    """The chat's buffer was evicted, as the least recently used; the next fetch rebuilds it.

    Args:
        messages: how many messages the view had, its head excluded.
    """

    messages: int


@attrs.frozen(kw_only=True)
class CompactionRequest:
    """What ``before_compaction`` is asked about.

    Args:
        key: which chat.
        reason: ``"trigger_at"``, ``"trigger_tokens"``, ``"manual"``, or ``"context"`` (a
            conversation's manager asks a summarizer that decides itself).
        history: what the summarizer would be given.
    """

    key: ChatKey
    reason: str
    history: tuple[ConversationMessage, ...]
