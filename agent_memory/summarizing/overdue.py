"""Telling of compactions that are due and do not happen."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import attrs

from agent_memory.messages import ChatKey

_log = logging.getLogger(__name__)

_ADVICE: Final[Mapping[str, str]] = {
    "not_yet": (
        "the summarizer says not yet (it returned None): lower its own threshold or what it "
        "keeps, or raise the trigger"
    ),
    "nothing_to_gain": (
        "there is nothing to gain: what must be kept (keep_last, the newest exchange, open "
        "questions) or what the summarizer kept is as long as the view; keep less, or raise "
        "the trigger"
    ),
    "more_tokens": (
        "the summary has more tokens than what it would replace: ask for shorter summaries, or "
        "raise the trigger"
    ),
    "refused": (
        "the result names the run in progress as summarized: name an older run, or None with "
        "messages_to_keep"
    ),
    "vetoed": "before_compaction vetoed it",
    "still_over": (
        "the new summary leaves it over the trigger: have the summarizer keep less, lower "
        "keep_last, or raise the trigger"
    ),
}


@attrs.define(eq=False)
class Overdue:
    """Warns of one chat: a warning at first, another when the view has doubled.

    Attributes:
        warned_at: messages and tokens of the view at the last warning.
    """

    warned_at: tuple[int, int] | None = None

    def tell(self, key: ChatKey, reason: str, messages: int, tokens: int) -> None:
        """Warn that a chat's view stays over its trigger.

        Args:
            key: which chat.
            reason: why, as :class:`~agent_memory.events.CompactionSkipped` says it, or
                ``"still_over"``.
            messages: how many the view has.
            tokens: how many it has, 0 where they are not counted.
        """
        advice = _ADVICE.get(reason)
        if advice is None:
            return
        if self.warned_at is not None:
            doubled = messages >= 2 * self.warned_at[0] or 0 < 2 * self.warned_at[1] <= tokens
            if not doubled:
                return
        self.warned_at = messages, tokens
        counted = f" and about {tokens} tokens" if tokens else ""
        _log.warning(
            "%s is due for a summary and gets none; its view has %d messages%s: %s",
            key,
            messages,
            counted,
            advice,
        )
