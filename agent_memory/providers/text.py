"""Texts that the library writes into messages, in the format of the chat."""

from __future__ import annotations

from typing import Any

import attrs

from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers.format import Format
from agent_memory.providers.parsing import format_named, format_of, parts
from agent_memory.providers.part import as_dict, as_list


def text_message(
    role: ParticipantRole | str,
    text: str,
    *,
    like: ConversationMessage | None = None,
    **fields: Any,
) -> ConversationMessage:
    """Make a message with this text, in the same format as `like`.

    Args:
        role: who speaks.
        text: what is said.
        like: a message of the same chat, usually its newest; its content decides between a
            plain string and a list with one block of that provider's. By default a string.
        fields: any other argument of :class:`ConversationMessage`.

    Raises:
        InvalidRequestError: if a field is invalid.
    """
    name = None if like is None or isinstance(like.content, str) else format_of(like)
    form = None if name is None else format_named(name)
    return ConversationMessage(role, text_content(text, form), **fields)


def text_content(text: str, form: Format | None) -> str | list[dict[str, Any]]:
    """The content of a message in this format that says `text`.

    Formats that keep roles and blocks apart (OpenAI's) take strings everywhere; where
    everything is a block, a block is written.
    """
    if form is None or not form.merges:
        return text
    return [form.write_text(text, ParticipantRole.USER)]


def with_prefix(message: ConversationMessage, prefix: str) -> ConversationMessage:
    """Return a message whose first text begins with `prefix`; everything else stays.

    A message that says nothing (calls alone, pictures alone, blank or no content) is returned as
    it is. The new one has the old one's id and place in the log.
    """
    content = message.content
    if isinstance(content, str):
        edited: Any = prefix + content if content.strip() and _says(message, None) else None
    else:
        edited = _with_prefixed_block(message, prefix)
    if edited is None:
        return message
    new = attrs.evolve(message, content=edited)
    if message.position is None or message.agent_id is None:
        return new
    return new.placed(message.position, message.agent_id)


def _with_prefixed_block(message: ConversationMessage, prefix: str) -> list[Any] | None:
    blocks = list(as_list(message.content))
    for index, item in enumerate(blocks):
        block = as_dict(item)
        if block is None or not isinstance(block.get("text"), str):
            continue
        if block["text"].strip() and _says(message, block):
            blocks[index] = {**block, "text": prefix + block["text"]}
            return blocks
    return None


def _says(message: ConversationMessage, block: Any) -> bool:
    """Whether a block (None: the content itself) is something said: no reasoning, no result."""
    return any(
        part.kind == "text" and (block is None or part.raw is block) for part in parts(message)
    )


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
