"""A history cut to a number of tokens, for a model with a smaller window."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import is_summary
from agent_memory.tokens import TokenCounter, guarded
from agent_memory.turns import group, leading_system, must_stay
from agent_memory.validation import checked_count

__all__ = ["fit_to_tokens"]


def fit_to_tokens(
    messages: Sequence[ConversationMessage],
    max_tokens: int,
    *,
    counter: TokenCounter | None = None,
) -> list[ConversationMessage]:
    """Return as much of a history as fits, in order, tool exchanges whole.

    Leading system messages, pinned groups and the newest group are always in; then summaries
    of this library's, as far as there is room; then the older groups, newest first, up to the
    first that does not fit.

    Args:
        messages: a view or a raw history, oldest first.
        max_tokens: how many tokens the result may have at most, by `counter`'s count. Leave
            room for tools and the answer.
        counter: by default a :class:`~agent_memory.tokens.HeuristicTokenCounter`.

    Raises:
        InvalidRequestError: what is always in needs more than `max_tokens`, or that is not an int.
    """
    checked_count(max_tokens, "max_tokens", at_least=None)
    count, head = guarded(counter).count, leading_system(messages)
    parts = group(messages)
    groups = [messages[part.start : part.stop] for part in parts]
    costs = [sum(map(count, members)) for members in groups]
    chosen = {
        at
        for at, members in enumerate(groups)
        if parts[at].start < head or at == len(groups) - 1 or any(map(must_stay, members))
    }
    left = max_tokens - sum(costs[at] for at in chosen)
    if left < 0:
        raise InvalidRequestError(
            f"the head and the newest messages alone take {max_tokens - left} tokens, "
            f"more than max_tokens={max_tokens}; shorten them or allow more"
        )
    newest_first = [at for at in reversed(range(len(groups))) if at not in chosen]
    summaries = {at for at in newest_first if all(map(is_summary, groups[at]))}
    for at in newest_first:
        if at in summaries and costs[at] <= left:
            chosen.add(at)
            left -= costs[at]
    for at in newest_first:
        if at not in summaries:
            if costs[at] > left:
                break
            chosen.add(at)
            left -= costs[at]
    return [message for at in sorted(chosen) for message in groups[at]]
