"""How full a model's context is: what a provider reported, and estimates of what came since."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory.messages import ConversationMessage, Usage
from agent_memory.tokens import TokenCounter


class Occupancy:
    """The tokens that the next request will take, as far as they are known.

    Args:
        counter: estimates what no report covers.
        reported: tokens that a report told of.
    """

    def __init__(self, counter: TokenCounter, reported: int = 0) -> None:
        self._counter = counter
        self._reported = reported
        self._since = 0

    @property
    def tokens(self) -> int:
        """The last report's prompt and reply, and an estimate of everything added since."""
        return self._reported + self._since

    def report(self, usage: Usage) -> None:
        """Take over what a provider reported: its prompt and reply are the context now."""
        self._reported = usage.total_tokens
        self._since = 0

    def add(self, messages: Iterable[ConversationMessage]) -> None:
        """Count messages that no report covers yet."""
        self._since += sum(map(self._counter.count, messages))

    def summarize(self, tokens_before: int, tokens_after: int) -> None:
        """Take off the estimate of what a summary removed, and add that of the summary."""
        self._reported = max(0, self._reported + tokens_after - tokens_before)
