"""A chat for people to read: Markdown in which no content can become markup."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from agent_memory.audit.chunks import Piece
from agent_memory.audit.log import Hole, each_of, hole_text, note_text
from agent_memory.audit.visible import one_line, visible
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, parts
from agent_memory.providers.part import to_json
from agent_memory.records import ChatInfo, Entry, Note
from agent_memory.storage.base import ChatStorage

_FENCE: Final = re.compile(r"`+")
_SPECIAL: Final = {ord(sign): f"\\{sign}" for sign in "\\`*_{}[]()#+!|<>~&-"}


async def markdown_of(storage: ChatStorage, info: ChatInfo) -> AsyncIterator[Piece | Hole]:
    """Yield a chat as Markdown, a message, note or hole at a time.

    What was said stands in fenced blocks, as it was written.
    """
    key = info.key
    whose = f"User {_escaped(key.user_id)}, agent {_escaped(key.agent_id)}"
    yield Piece(f"# {_escaped(key.session_id)}\n\n{whose}\n")
    async for item in each_of(storage, info):
        if isinstance(item, Hole):
            yield item
            head = f"\n## {_escaped(item.positions)} · hole\n"
            yield Piece(f"{head}\n**{_escaped(hole_text(item))}**\n", item.count)
        elif isinstance(item, Note):
            yield Piece(f"{_head(item, 'note')}\n{_escaped(note_text(item))}\n", 1)
        else:
            yield Piece(_section(item), 1)
    yield Piece("\n")


def _head(entry: Entry, word: str) -> str:
    when = entry.timestamp.isoformat(sep=" ", timespec="seconds")
    return f"\n## {entry.position} · {word}\n\n{when}\n"


def _section(message: ConversationMessage) -> str:
    return _head(message, message.role.value) + "".join([_block(part) for part in parts(message)])


def _block(part: Part) -> str:
    name = _escaped(part.name or "")
    if part.kind == "call":
        arguments = part.payload if isinstance(part.payload, str) else to_json(part.payload)
        return f"\nCalls the tool {name}:\n{_fenced(arguments)}"
    if part.kind == "result":
        return f"\n{'The tool failed' if part.is_error else 'The tool answered'}:\n" + _fenced(
            part.text
        )
    if part.kind == "reasoning":
        return f"\nThought:\n{_fenced(part.text)}" if part.text else ""
    if part.kind == "media":
        return f"\n({name or 'an attachment'})\n"
    return _fenced(part.text) if part.text else ""


def _fenced(text: str) -> str:
    longest = max((len(run) for run in _FENCE.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}text\n{visible(text)}\n{fence}\n"


def _escaped(text: str) -> str:
    return one_line(text).translate(_SPECIAL)
