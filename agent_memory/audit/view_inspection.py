"""A chat's view, compared with what is stored."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from agent_memory.explaining import ExplainedMessage, Explanation, Standing
from agent_memory.log import SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import Provider
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing import SummarizingChatStorage
from agent_memory.tokens import HeuristicTokenCounter, TokenCounter


class NoSummarizer:
    """Always declines, so that inspecting a view never changes it."""

    def summarize(self, messages: list[ConversationMessage], context_tokens: int) -> None:
        """Say "not yet", always."""


async def explanation_of(
    storage: ChatStorage, key: ChatKey, *, provider: Provider | None = None
) -> Explanation:
    """Explain what a model sees of a chat; nothing is summarized.

    The view is what the newest stored summary makes of the chat. An application whose trigger
    has not been reached since its start shows the chat raw until then.

    Args:
        storage: the raw store.
        key: which chat.
        provider: make the view valid for this API; None leaves it as it is.
    """
    # The smallest trigger: any stored summary is used, as after a restart of an application.
    wrapper = SummarizingChatStorage(
        storage, NoSummarizer(), 2, 1, provider=provider, close_inner=False
    )
    async with wrapper as watching:
        return await watching.explain(key.user_id, key.session_id, key.agent_id)


@attrs.frozen
class Stretch:
    """Consecutive raw messages that appear in the view in the same way.

    Args:
        standing: how.
        messages: which.
        summary: the record whose summary they were first handed to, None while they are shown
            or when it is not kept.
        number: its number, from 1; 0 for none.
        tokens: of the messages, estimated.
    """

    standing: Standing
    messages: tuple[ConversationMessage, ...]
    summary: SummaryRecord | None
    number: int
    tokens: int

    @property
    def is_shown(self) -> bool:
        """Whether the view holds these messages as they are."""
        return self.standing in ("verbatim", "pinned")


def stretches_of(explanation: Explanation, counter: TokenCounter | None = None) -> list[Stretch]:
    """Group consecutive messages that appear in the view in the same way."""
    count = (counter or HeuristicTokenCounter()).count
    numbers = {record.id: number for number, record in enumerate(explanation.summaries, 1)}
    found: list[list[ExplainedMessage]] = []
    for explained in explanation.messages:
        last = found[-1][-1] if found else None
        if last is None or _way(last) != _way(explained):
            found.append([])
        found[-1].append(explained)
    stretches: list[Stretch] = []
    for group in found:
        number = numbers.get(group[0].summary_id or "", 0)
        messages = tuple(explained.message for explained in group)
        record = explanation.summaries[number - 1] if number else None
        tokens = sum([count(message) for message in messages])
        stretches.append(Stretch(group[0].standing, messages, record, number, tokens))
    return stretches


def _way(explained: ExplainedMessage) -> tuple[Standing, str | None]:
    return explained.standing, explained.summary_id


def tokens_of(messages: Sequence[ConversationMessage]) -> int:
    """Return how many tokens messages take, estimated."""
    count = HeuristicTokenCounter().count
    return sum([count(message) for message in messages])
