"""Chats written in OpenAI's message format."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from agent_memory.audit.chunks import Piece
from agent_memory.audit.pages import pages
from agent_memory.audit.visible import safe_json
from agent_memory.exchanges import facts_of
from agent_memory.messages import ConversationMessage
from agent_memory.providers import convert
from agent_memory.providers.part import to_json
from agent_memory.records import ChatInfo
from agent_memory.storage.base import ChatStorage

_SEGMENT: Final = 200


async def conversation_of(storage: ChatStorage, info: ChatInfo) -> AsyncIterator[Piece]:
    """Yield a chat as one line of OpenAI's format, in pieces.

    Messages of other providers' forms are converted. Notes, summaries, ids, timestamps and
    metadata are not carried: use the lossless form for those.
    """
    key = info.key
    names = {"id": key.session_id, "user_id": key.user_id, "agent_id": key.agent_id}
    yield Piece(safe_json(to_json(names))[:-1] + ', "messages": [')
    separator = ""
    async for messages in _segments(storage, info):
        converted = convert(messages, "openai")
        texts = [safe_json(to_json(message)) for message in converted.messages]
        text = separator + ", ".join(texts) if texts else ""
        separator = ", " if text else separator
        yield Piece(text, len(messages), len(converted.left_out))
    yield Piece("]}")


async def _segments(
    storage: ChatStorage, info: ChatInfo
) -> AsyncIterator[list[ConversationMessage]]:
    """Yield a chat's messages in lists that tear no tool exchange, for converting."""
    held: list[ConversationMessage] = []
    async for part in pages(storage, info.key, last=info.last):
        for message in part.messages:
            if len(held) >= _SEGMENT and facts_of(message).asks:
                yield held
                held = []
            held.append(message)
    yield held
