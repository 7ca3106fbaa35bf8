"""The simplest summarizer: keep the newest messages, drop the rest without a summary."""

from __future__ import annotations

from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import SummaryResult
from agent_memory.summarizers.bounds import KeepBounds
from agent_memory.summarizers.cutting import run_starts, runs_cut, split_at, summarized_run
from agent_memory.turns import leading_system, safe_start
from agent_memory.validation import checked_count


class SlidingWindowSummarizer:
    """Keeps the newest runs whole and shows nothing of the older ones. No model, no summary.

    Runs are blocks of one ``run_id``; a chat without any is grouped by the user's turns. The
    raw messages stay in the store. Whoever holds it may keep less than `keep_count` runs where
    these alone exceed its trigger, down to the newest exchanges of a single one.

    Args:
        keep_count: how many of the newest runs to keep; less than 1 counts as 1.

    Raises:
        InvalidRequestError: `keep_count` is not an int.
    """

    def __init__(self, keep_count: int = 1) -> None:
        self.keep_count = max(checked_count(keep_count, "keep_count", at_least=None), 1)

    def __call__(
        self, history: list[ConversationMessage], keep_last: int
    ) -> list[ConversationMessage]:
        """Return leading system messages and the newest messages.

        Args:
            history: the messages, oldest first.
            keep_last: pairs that are asked for; the longer of the two windows wins.
        """
        head = leading_system(history)
        asked = safe_start(history, max(len(history) - 2 * keep_last, 0))
        cut = min(runs_cut(history, self.keep_count), asked)
        return [*history[:head], *history[max(cut, head) :]]

    def summarize(
        self,
        messages: list[ConversationMessage],
        context_tokens: int,
        *,
        bounds: KeepBounds | None = None,
    ) -> SummaryResult | None:
        """Return the window as what is to be kept; None where it holds everything.

        Args:
            messages: the history, oldest first.
            context_tokens: ignored; the caller has decided that it is time.
            bounds: how much may be kept; None for `keep_count` runs, however long they are.
        """
        cut = runs_cut(messages, self.keep_count)
        run_id = None
        if bounds is not None:
            cut, run_id = bounds.cut(cut, run_starts(messages), share=1), bounds.run_id
        old, recent = split_at(messages, cut, bounds)
        if not old or not (bounds is None or bounds.leaves(cut)):
            return None
        return SummaryResult(None, recent, summarized_run(messages, cut, run_id))
