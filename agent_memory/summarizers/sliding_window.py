"""The simplest summarizer: forget what is old, tell nothing of it."""

from __future__ import annotations

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import SummaryResult
from agent_memory.summarizers.cutting import split_at, summarized_run
from agent_memory.turns import leading_system, safe_start


class SlidingWindowSummarizer:
    """Keeps the newest messages and shows nothing of the older ones. No model, no summary.

    The window is at least `keep_count` messages long: it is widened to where the history may
    be cut, so that no tool call is parted from its results. The raw messages stay in the store.

    Args:
        keep_count: how many messages to keep; less than 1 counts as 1.

    Raises:
        InvalidRequestError: `keep_count` is no int.
    """

    def __init__(self, keep_count: int) -> None:
        if type(keep_count) is not int:
            raise InvalidRequestError(f"keep_count must be an int, not {keep_count!r}")
        self.keep_count = max(keep_count, 1)

    def __call__(
        self, history: list[ConversationMessage], keep_last: int
    ) -> list[ConversationMessage]:
        """Return leading system messages and the newest messages.

        Args:
            history: the messages, oldest first.
            keep_last: pairs that are asked for; the longer of the two windows wins.
        """
        head = leading_system(history)
        cut = self._cut(history, max(self.keep_count, 2 * keep_last))
        return [*history[:head], *history[max(cut, head) :]]

    def summarize(
        self, messages: list[ConversationMessage], context_tokens: int
    ) -> SummaryResult | None:
        """Return the window as what is to be kept; None where it holds everything.

        Args:
            messages: the history, oldest first.
            context_tokens: not looked at; whoever asks has decided that it is time.
        """
        cut = self._cut(messages, self.keep_count)
        old, recent = split_at(messages, cut)
        if not old:
            return None
        return SummaryResult((), recent, last_summarized_run_id=summarized_run(messages, cut))

    @staticmethod
    def _cut(messages: list[ConversationMessage], count: int) -> int:
        return safe_start(messages, max(len(messages) - count, 0))
