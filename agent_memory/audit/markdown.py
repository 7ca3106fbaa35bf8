"""A session for people to read: Markdown in which no content can become markup."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from agent_memory.audit.chunks import Piece
from agent_memory.audit.log import Hole, each_of, hole_text, note_text
from agent_memory.audit.selecting import WHOLE, Selection
from agent_memory.audit.visible import one_line, visible
from agent_memory.providers import Part, parts
from agent_memory.providers.part import to_json
from agent_memory.records import ChatInfo, Entry, Note
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.merging import merge_streams

_FENCE: Final = re.compile(r"`+")
_SPECIAL: Final = {ord(sign): f"\\{sign}" for sign in "\\`*_{}[]()#+!|<>~&-"}


async def markdown_of(
    storage: ChatStorage, infos: Sequence[ChatInfo], selection: Selection = WHOLE
) -> AsyncIterator[Piece | Hole]:
    """Yield a session as Markdown, a message, note or hole at a time.

    What was said stands in fenced blocks, as it was written. The chats of several agents are
    merged into one transcript, as they were spoken.

    Args:
        storage: where they are.
        infos: the session's chats, at least one.
        selection: what of them; where nothing is, nothing is written.
    """
    streams = {info.key.agent_id: each_of(storage, info) for info in infos}
    items = await selection.begun(merge_streams(streams))
    if items is None:
        return
    yield Piece(_title(infos, selection))
    several = len(infos) > 1
    async for item in items:
        if isinstance(item, Hole):
            yield item
            agent = f" · {_escaped(item.key.agent_id)}" if several else ""
            head = f"\n## {_escaped(item.positions)} · hole{agent}\n"
            yield Piece(f"{head}\n**{_escaped(hole_text(item))}**\n", item.count)
        else:
            agent = f" · {_escaped(item.agent_id or '')}" if several else ""
            yield Piece(_section(item, agent), 1)
    yield Piece("\n")


def _title(infos: Sequence[ChatInfo], selection: Selection) -> str:
    key = infos[0].key
    agents = ", ".join([_escaped(info.key.agent_id) for info in infos])
    word = "agent" if len(infos) == 1 else "agents"
    whose = f"User {_escaped(key.user_id)}, {word} {agents}"
    told = [f"{name} {_escaped(value)}" for name, value in selection.as_dict().items()]
    part = f"\nNot all of it: {', '.join(told)}\n" if told else ""
    return f"# {_escaped(key.session_id)}\n\n{whose}\n{part}"


def _section(entry: Entry, agent: str) -> str:
    word = "note" if isinstance(entry, Note) else entry.role.value
    when = entry.timestamp.isoformat(sep=" ", timespec="seconds")
    head = f"\n## {entry.position} · {word}{agent}\n\n{when}\n"
    if isinstance(entry, Note):
        return f"{head}\n{_escaped(note_text(entry))}\n"
    return head + "".join([_block(part) for part in parts(entry)])


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
