"""When a chat is summarized, and what bounds it: the options of ``SummarizingChatStorage``."""

from __future__ import annotations

import math
from typing import Any

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.storage.requests import checked_count
from agent_memory.view import ChatView


def _at_least(least: int) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None or attribute.default is not None:
            checked_count(value, attribute.name, least)

    return check


def _seconds(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidRequestError(
            f"{attribute.name} must be a number of seconds above 0, or None for no limit, "
            f"not {value!r}"
        )


@attrs.frozen(kw_only=True)
class Trigger:
    """When a view is compacted. Both measures leave out what is never summarized.

    Args:
        trigger_at: pairs of messages; a view of strictly more than twice as many messages is
            compacted (at least 2).
        keep_last: pairs of messages that the summarizer is asked to keep (at least 1, below
            `trigger_at`).
        trigger_tokens: a view of strictly more tokens is compacted too, whichever is exceeded
            first; None for no such limit.

    Raises:
        InvalidRequestError: a figure is out of its range.
    """

    trigger_at: int = attrs.field(default=20, validator=_at_least(2))
    keep_last: int = attrs.field(default=2, validator=_at_least(1))
    trigger_tokens: int | None = attrs.field(default=None, validator=_at_least(1))

    def __attrs_post_init__(self) -> None:
        if self.keep_last >= self.trigger_at:
            raise InvalidRequestError(
                f"keep_last ({self.keep_last}) must be below trigger_at ({self.trigger_at}): "
                "keeping as much as triggers leaves nothing to summarize"
            )

    @property
    def messages(self) -> int:
        """How many messages a view may have."""
        return 2 * self.trigger_at

    def exceeded(self, size: int, tokens: int) -> str | None:
        """Return the name of the limit that so many messages and tokens exceed, or None."""
        if size > self.messages:
            return "trigger_at"
        if self.trigger_tokens is not None and tokens > self.trigger_tokens:
            return "trigger_tokens"
        return None

    def wait_after(self, view: ChatView) -> int:
        """Return how many new messages to wait for after a compaction that left this view.

        With headroom none: the limits themselves space the attempts. Without it, when what was
        kept or the summary alone is about as large as the limit, one whole limit, so that the
        number of calls does not grow with the number of saves.
        """
        room = view.size <= self.trigger_at or (view.size < self.messages and len(view.block) <= 1)
        if room and self.trigger_tokens is not None:
            room = view.tokens <= self.trigger_tokens // 2
        return 0 if room else self.messages


@attrs.frozen(kw_only=True)
class Limits:
    """What bounds the work and the memory.

    Args:
        max_buffers: chats whose view is held in memory; the least recently used gives way. A
            view costs its messages and under 1 KiB.
        summarizer_timeout: seconds that a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in the middle; None for no limit.
        max_head_tokens: pinned messages beyond it become ordinary, the oldest first; None for
            no limit.
        max_concurrent_summaries: summarizers that work at the same moment, over all chats.
        hard_limit: pairs of messages; with work in the background, a save that finds a view of
            strictly more than twice as many messages, or of as many times more tokens as that
            exceeds the trigger, waits all the same. None for four times the trigger.
        drain_timeout: seconds that closing waits for compactions under way.

    Raises:
        InvalidRequestError: a figure is out of its range.
    """

    max_buffers: int = attrs.field(default=1_000, validator=_at_least(1))
    summarizer_timeout: float | None = attrs.field(default=60.0, validator=_seconds)
    max_summary_tokens: int | None = attrs.field(default=8_000, validator=_at_least(16))
    max_head_tokens: int | None = attrs.field(default=None, validator=_at_least(1))
    max_concurrent_summaries: int = attrs.field(default=16, validator=_at_least(1))
    hard_limit: int | None = attrs.field(default=None, validator=_at_least(1))
    drain_timeout: float | None = attrs.field(default=30.0, validator=_seconds)

    def is_far_over(self, trigger: Trigger, size: int, tokens: int) -> bool:
        """Whether a view has grown so far that a save waits for its compaction."""
        pairs = 4 * trigger.trigger_at if self.hard_limit is None else self.hard_limit
        if size > 2 * pairs:
            return True
        most = (trigger.trigger_tokens or 0) * pairs / trigger.trigger_at
        return trigger.trigger_tokens is not None and tokens > most
