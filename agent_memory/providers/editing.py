"""Small edits of what a message says, in whichever provider's form it is written."""

from __future__ import annotations

from typing import Any

import attrs

from agent_memory.messages import ConversationMessage
from agent_memory.providers.part import as_dict, as_list
from agent_memory.providers.reading import parts


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
