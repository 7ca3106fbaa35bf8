"""Cutting the middle out of texts, and bounding a summary, which could fill the view else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from agent_memory.messages import ConversationMessage
from agent_memory.providers import text_message, text_of

_ROUNDS: Final = 8
_MARGIN: Final = 0.9


def cut_middle(text: str, size: int, mark: str, *, head: int | None = None) -> str:
    """Return a text without its middle, if it is longer than `size`.

    Args:
        text: the text.
        size: how many of its characters stay.
        mark: what stands in place of the others.
        head: how many of these are its first ones; by default half.
    """
    if len(text) <= size:
        return text
    first = size // 2 if head is None else head
    return f"{text[:first]}{mark}{text[len(text) - size + first :]}"


def clip_summary(
    block: Sequence[ConversationMessage],
    max_tokens: int,
    count: Callable[[ConversationMessage], int],
) -> tuple[ConversationMessage, ...]:
    """Cut the texts of a block that are longer than their share of `max_tokens`.

    Messages of the chat's own log are left as they are. A text is cut in its middle: what comes
    first says what it is, what comes last is the newest.

    Args:
        block: what stands for the older messages of a chat.
        max_tokens: for the made messages together.
        count: tells the tokens of a message.
    """
    made = [message for message in block if message.position is None]
    if sum(map(count, made)) <= max_tokens:
        return tuple(block)
    share = max(1, max_tokens // len(made))
    return tuple(
        message if message.position is not None else _clip(message, share, count)
        for message in block
    )


def _clip(
    message: ConversationMessage, max_tokens: int, count: Callable[[ConversationMessage], int]
) -> ConversationMessage:
    text = text_of(message)
    size = len(text)
    clipped = message
    for _ in range(_ROUNDS):
        tokens = count(clipped)
        if tokens <= max_tokens:
            return clipped
        size = min(int(size * _MARGIN * max_tokens / tokens), size - 1)
        kept = max(0, size)
        mark = f"\n[… {len(text) - kept} characters left out …]\n"
        clipped = _with_text(message, cut_middle(text, kept, mark))
    return _with_text(message, "…")


def _with_text(message: ConversationMessage, text: str) -> ConversationMessage:
    return text_message(
        message.role,
        text,
        like=message,
        id=message.id,
        timestamp=message.timestamp,
        run_id=message.run_id,
        metadata=dict(message.metadata),
    )
