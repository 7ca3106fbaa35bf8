"""From a message in any provider's form to its parts, without being told the provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import anthropic, bedrock, openai_chat, openai_responses
from agent_memory.providers.media import Media
from agent_memory.providers.part import (
    ANTHROPIC,
    CHAT,
    PLAIN,
    RESPONSES,
    TYPED,
    Block,
    Part,
    Shape,
    as_dict,
    as_id,
    as_list,
    as_text,
    joined,
)

_ITEM_TYPES: Final = (
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)
"""Responses items that some frameworks put into the content as blocks."""

_READERS: Final[Mapping[str, Callable[[Block], Part]]] = {
    **dict.fromkeys(_ITEM_TYPES, openai_responses.read_item),
    **openai_responses.READERS,
    **anthropic.READERS,
    **openai_chat.READERS,
}
_MEDIA: Final[tuple[tuple[frozenset[Shape], Callable[[Block], Media | None]], ...]] = (
    (CHAT, openai_chat.media_of),
    (RESPONSES, openai_responses.media_of),
    (ANTHROPIC, anthropic.media_of),
)
_TOOL: Final = ParticipantRole.TOOL


def parts(message: ConversationMessage) -> tuple[Part, ...]:
    """Say what a message is made of, in order.

    Recognises OpenAI Chat Completions, OpenAI Responses items, Anthropic Messages and Bedrock
    Converse, also mixed in one message. Never raises: what it does not know has the kind
    ``other``.
    """
    content, extra = message.content, message.extra
    if not extra and type(content) is str and message.role is not _TOOL:
        return (Part("text", content, raw=content, forms=PLAIN),)
    item = openai_responses.item_of(message) if extra else None
    if item is not None:
        return (openai_responses.read_item(item),)
    found = _read_content(content)
    if message.role is _TOOL and not any(part.kind == "result" for part in found):
        return (_tool_result(message, tuple(found)),)
    if extra:
        found = [*openai_chat.read_before(extra), *found, *openai_chat.read_after(extra)]
    return tuple(found)


def _tool_result(message: ConversationMessage, inner: tuple[Part, ...]) -> Part:
    content, extra = message.content, message.extra
    # Blocks of another provider's within it have to be rewritten before OpenAI takes it.
    own = all("openai_chat" in part.forms for part in inner)
    return Part(
        "result",
        content if isinstance(content, str) else joined(inner),
        id=as_id(extra.get("tool_call_id")),
        name=as_id(extra.get("name")),
        payload=content,
        inner=inner if isinstance(content, list) else (),
        raw=content,
        forms=CHAT if own else frozenset(),
    )


def _read_content(content: object) -> list[Part]:
    if isinstance(content, str):
        return [Part("text", content, raw=content, forms=PLAIN)]
    if content is None:
        return []
    blocks = as_list(content)
    return [_read_block(block) for block in blocks] if blocks else _read_lone(content)


def _read_lone(content: object) -> list[Part]:
    """Content that is neither text nor a list: outside every provider's form."""
    return [] if isinstance(content, list) else [_read_block(content)]


def _read_block(value: object) -> Part:
    block = as_dict(value)
    if block is None:
        # Some SDKs allow bare strings among the blocks; others reject them.
        return Part("other", as_text(value), raw=value)
    kind = block.get("type")
    if isinstance(kind, str):
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(block)
        if kind.endswith("_tool_result"):
            return anthropic.read_result(block)
        return Part("other", as_text(block.get("text")), name=kind, raw=block)
    return bedrock.read_block(block) or Part("other", as_text(block.get("text")), raw=block)


def text_of(message: ConversationMessage) -> str:
    """What is said in a message: its text parts, a line each; no reasoning, calls or results."""
    return joined(parts(message))


def shape_of(message: ConversationMessage) -> Shape | None:
    """Which provider's form a message is written in; None when it could be any one's.

    A plain string, or no content at all, tells nothing. Blocks ``{"type": "text", …}`` are the
    same in two forms; they count as Anthropic's, where they are the rule.
    """
    kind = message.extra.get("type")
    if kind == "message" and isinstance(message.content, str):
        return "openai_responses"
    found: Shape | None = None
    for part in parts(message):
        if len(part.forms) == 1:
            return next(iter(part.forms))
        if part.forms == TYPED:
            found = found or "anthropic"
        elif part.forms < PLAIN:
            found = "openai_responses" if kind == "message" else "openai_chat"
    return found


def media_in(part: Part) -> Media | None:
    """What a media part holds, in terms that no provider owns; None when that is not clear."""
    block = as_dict(part.raw)
    if part.kind != "media" or block is None:
        return None
    if not isinstance(block.get("type"), str):
        return bedrock.media_of(block)
    for form, read in _MEDIA:
        if part.forms & form:
            return read(block)
    return None
