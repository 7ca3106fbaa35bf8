"""Chats written in OpenAI's message format."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from agent_memory.audit.chunks import Piece
from agent_memory.audit.log import Hole, LogItem, each_of
from agent_memory.audit.selecting import WHOLE, Selection
from agent_memory.audit.visible import safe_json
from agent_memory.exchanges import facts_of
from agent_memory.messages import ConversationMessage
from agent_memory.providers import convert
from agent_memory.providers.part import to_json
from agent_memory.records import ChatInfo, Note
from agent_memory.storage.base import ChatStorage

_SEGMENT: Final = 200


async def conversation_of(
    storage: ChatStorage, info: ChatInfo, selection: Selection = WHOLE
) -> AsyncIterator[Piece | Hole]:
    """Yield a chat as one line of OpenAI's format, in pieces.

    What is left out by a selection is told in the line (``selected``); where nothing of a chat
    is selected, there is no line.

    Messages of other providers' forms are converted. Summaries, ids, timestamps and metadata are
    not carried: use the lossless form for those. Notes, and positions that cannot be read, stand
    in lists of their own, ``notes`` and ``holes``, where the format has a place for them: each
    says its position, and before which of the messages (``before``, an index) it is.
    """
    key = info.key
    items = await selection.begun(each_of(storage, info))
    if items is None:
        return
    names: dict[str, Any] = {
        "id": key.session_id,
        "user_id": key.user_id,
        "agent_id": key.agent_id,
        **({"selected": selection.as_dict()} if selection else {}),
    }
    yield Piece(safe_json(to_json(names))[:-1] + ', "messages": [')
    separator, count = "", 0
    marks: dict[str, list[dict[str, Any]]] = {"notes": [], "holes": []}
    async for segment in _segments(items):
        if isinstance(segment, Hole):
            yield segment
            told = f"{segment.place}: {segment.reason}"
            place = {"position": segment.first, "through": segment.last, "before": count}
            marks["holes"].append({**place, "unreadable": told})
            yield Piece("", segment.count)
        elif isinstance(segment, Note):
            said = {"note": segment.kind, "data": segment.data}
            marks["notes"].append({"position": segment.position, "before": count, **said})
            yield Piece("", 1)
        else:
            converted = convert(segment, "openai")
            count += len(converted.messages)
            texts = [safe_json(to_json(message)) for message in converted.messages]
            text = separator + ", ".join(texts) if texts else ""
            separator = ", " if text else separator
            yield Piece(text, len(segment), len(converted.left_out))
    held = {name: listed for name, listed in marks.items() if listed}
    yield Piece("]" + "".join([f', "{name}": {safe_json(to_json(held[name]))}' for name in held]))
    yield Piece("}")


async def _segments(
    items: AsyncIterator[LogItem],
) -> AsyncIterator[list[ConversationMessage] | Note | Hole]:
    """Yield a chat in lists of messages that tear no tool exchange, and what is between them.

    A note within an exchange is given after it.
    """
    held: list[ConversationMessage] = []
    notes: list[Note] = []
    waits: set[str | None] = set()
    async for item in items:
        if isinstance(item, Note):
            notes.append(item)
            continue
        facts = None if isinstance(item, Hole) else facts_of(item)
        if facts is None or facts.asks:
            waits = set()  # what was called before will hardly be answered any more
        is_enough = facts is None or notes or (facts.asks and len(held) >= _SEGMENT)
        if is_enough and not waits:
            yield held
            for note in notes:
                yield note
            held, notes = [], []
        if isinstance(item, Hole):
            yield item
        elif facts is not None:
            held.append(item)
            waits = (waits | set(facts.waits)) - set(facts.results)
    yield held
    for note in notes:
        yield note
