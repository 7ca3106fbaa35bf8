"""Messages that the library itself makes, in the shape of the chat they join."""

from __future__ import annotations

from typing import Any

from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import anthropic, bedrock
from agent_memory.providers.part import Shape
from agent_memory.providers.reading import shape_of


def text_message(
    role: ParticipantRole | str,
    text: str,
    *,
    like: ConversationMessage | None = None,
    **fields: Any,
) -> ConversationMessage:
    """Make a message that says `text`, written as `like` is.

    Args:
        role: who speaks.
        text: what is said.
        like: a message of the same chat, usually its newest; its content decides between a
            plain string and a list with one block of that provider's. By default a string.
        fields: any other argument of :class:`ConversationMessage`.

    Raises:
        InvalidRequestError: a field is invalid.
    """
    shape = None if like is None or isinstance(like.content, str) else shape_of(like)
    return ConversationMessage(role, text_content(text, shape), **fields)


def text_content(text: str, shape: Shape | None) -> str | list[dict[str, Any]]:
    """The content of a message in `shape` that says `text`.

    OpenAI takes strings everywhere, so that only Anthropic and Bedrock get a block.
    """
    match shape:
        case "bedrock":
            return [bedrock.write_text(text)]
        case "anthropic":
            return [anthropic.write_text(text)]
        case _:
            return text
