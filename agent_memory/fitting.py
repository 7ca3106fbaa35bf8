"""A history cut to a number of tokens, for a model with a smaller window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import is_summary
from agent_memory.tokens import TokenCounter, guarded
from agent_memory.turns import Group, group, leading_system, must_stay
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
        InvalidRequestError: what is always in needs more than `max_tokens`, or that is no int.
    """
    checked_count(max_tokens, "max_tokens", at_least=None)
    groups = group(messages)
    costs = _costs(groups, messages, guarded(counter))
    chosen = _always_in(groups, messages)
    left = max_tokens - sum(costs[at] for at in chosen)
    if left < 0:
        raise InvalidRequestError(
            f"the head and the newest messages alone take {max_tokens - left} tokens, "
            f"more than max_tokens={max_tokens}; shorten them or allow more"
        )
    summaries = [at for at in range(len(groups)) if _is_summary(groups[at], messages)]
    for at in reversed([at for at in summaries if at not in chosen]):
        if costs[at] <= left:
            chosen.add(at)
            left -= costs[at]
    chosen |= _newest(groups, costs, left, chosen | set(summaries))
    return [message for at in sorted(chosen) for message in _of(groups[at], messages)]


def _of(part: Group, messages: Sequence[ConversationMessage]) -> Sequence[ConversationMessage]:
    return messages[part.start : part.stop]


def _costs(
    groups: Iterable[Group], messages: Sequence[ConversationMessage], counter: TokenCounter
) -> list[int]:
    return [sum(map(counter.count, _of(part, messages))) for part in groups]


def _is_summary(part: Group, messages: Sequence[ConversationMessage]) -> bool:
    return all(is_summary(message) for message in _of(part, messages))


def _always_in(groups: list[Group], messages: Sequence[ConversationMessage]) -> set[int]:
    head = leading_system(messages)
    chosen = {
        at
        for at, part in enumerate(groups)
        if part.start < head or any(map(must_stay, _of(part, messages)))
    }
    if groups:
        chosen.add(len(groups) - 1)
    return chosen


def _newest(groups: list[Group], costs: list[int], left: int, skipped: set[int]) -> set[int]:
    found: set[int] = set()
    for at in reversed(range(len(groups))):
        if at in skipped:
            continue
        if costs[at] > left:
            break
        found.add(at)
        left -= costs[at]
    return found
