"""Bounding a summary, so that one which only ever grows cannot fill the view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from agent_memory.messages import ConversationMessage
from agent_memory.providers import text_message, text_of

_ROUNDS: Final = 8
_MARGIN: Final = 0.9


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
        clipped = _with_text(message, _cut_middle(text, size))
    return _with_text(message, "…")


def _cut_middle(text: str, size: int) -> str:
    half = max(0, size // 2)
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[… {left_out} characters left out …]\n{text[len(text) - half :]}"


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
