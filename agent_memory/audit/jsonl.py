"""The lossless form of chats in a file: JSON, a line for each entry.

The first line says what the file is. Each entry's line names its chat, its position and the
entry itself, in the form that stores keep (:mod:`agent_memory.storage.codec`). The line that
ends a chat holds its summary records. Every line stands for itself, so that a file may be cut,
joined, searched with ``grep`` and read with ``jq``.

Not carried: when the store received an entry (a message's own ``timestamp`` is carried), and
positions below a chat's floor, which hold nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import attrs

from agent_memory.audit.chat_copy import records_of
from agent_memory.audit.chunks import (
    ChatEnd,
    DefaultIds,
    ExportWriter,
    Line,
    SourceEntry,
    Tally,
    read_lines,
)
from agent_memory.audit.escaping import safe_json
from agent_memory.audit.findings import Finding
from agent_memory.audit.log_pages import ChatReader, Hole, LogItem
from agent_memory.audit.selection import WHOLE, Scope, Selection
from agent_memory.content import freeze
from agent_memory.errors import AgentMemoryError, CorruptedRecordError, InvalidRequestError
from agent_memory.keys import chat_key, check_id
from agent_memory.log import ChatInfo, Entry, Note, SummaryRecord
from agent_memory.messages import (
    ROLES,
    ChatKey,
    ConversationMessage,
    Usage,
    bare_message,
    utc_timestamp,
)
from agent_memory.providers.part import as_list
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import decode_record, encode_entry, encode_record, parse

FORMAT: Final = "agent-memory"
_PLAIN: Final = {"id", "role", "content", "timestamp"}
_ABSENT: Final[dict[str, Any]] = {
    "run_id": None,
    "pinned": False,
    "usage": None,
    "extra": freeze({}),
    "metadata": freeze({}),
}
# What the first line of a file holds beside the others where it is only a part of chats.
_SELECTED: Final = "selected"


def header(selection: Selection = WHOLE) -> str:
    """Return the first line of a file."""
    part = {_SELECTED: selection.as_dict()} if selection else {}
    return safe_json(json.dumps({"v": 1, "export": FORMAT, **part}, separators=(",", ":")))


def selected_in(fields: dict[str, Any]) -> str:
    """Return the selection that a header names; empty for an export of whole chats."""
    chosen = fields.get(_SELECTED)
    if isinstance(chosen, dict):
        options = cast("dict[str, Any]", chosen)
        return ", ".join([f"{name} {value}" for name, value in options.items()])
    return ""


@attrs.frozen
class ResumePoint:
    """Where an interrupted export is resumed.

    Args:
        key: the last chat that was written to.
        position: of its last written entry.
        ended: whether the line that ends the chat was written.
    """

    key: ChatKey
    position: int
    ended: bool


async def write_lines(
    storage: ChatStorage,
    scope: Scope,
    writer: ExportWriter,
    *,
    since: ResumePoint | None = None,
    selection: Selection = WHOLE,
) -> None:
    """Write the lines of an export, without the header.

    Args:
        storage: where the chats are.
        scope: which chats.
        writer: what writes.
        since: where an earlier export of the same chats ended.
        selection: which entries. Where it omits any, no line ends a chat and no summary is
            written, so that no reader takes the file for a complete export.
    """
    async for info in scope.chats(storage):
        after, key = 0, info.key
        if since is not None:
            if key < since.key or (key == since.key and since.ended):
                continue
            after = since.position if key == since.key else 0
        await _write_chat(storage, info, after, writer, selection)


async def _write_chat(
    storage: ChatStorage, info: ChatInfo, after: int, writer: ExportWriter, selection: Selection
) -> None:
    start, last = _start(info.key), max(info.floor, after)
    reader = ChatReader(storage, info, after)
    async for item in reader.items():
        if not selection.takes(item):
            continue
        if isinstance(item, Hole):
            last = item.last
            writer.tell(item)
            writer.write(_hole_line(start, item), item.count)
        else:
            last = item.position or last
            writer.write(_line(start, item), 1)
    if selection:
        return
    records = [encode_record(record) for record in await records_of(storage, info, reader.floor)]
    summaries = safe_json(",".join(records))
    end = f'{start}{last},"ends":true,"floor":{reader.floor},"summaries":[{summaries}]}}\n'
    writer.write(end)


def item_line(key: ChatKey, item: LogItem) -> str:
    """Return the line for one position of a log."""
    start = _start(key)
    return _hole_line(start, item) if isinstance(item, Hole) else _line(start, item)


def _start(key: ChatKey) -> str:
    chat = json.dumps([key.user_id, key.session_id, key.agent_id], ensure_ascii=False)
    return safe_json(f'{{"v":1,"chat":{chat},"position":')


def _hole_line(start: str, hole: Hole) -> str:
    through = f'"through":{hole.last},' if hole.count > 1 else ""
    reason = json.dumps(f"{hole.place}: {hole.reason}")
    return f'{start}{hole.first},{through}"unreadable":{reason}}}\n'


def _line(start: str, entry: Entry) -> str:
    return f'{start}{entry.position},"entry":{safe_json(encode_entry(entry))}}}\n'


def is_line(fields: dict[str, Any]) -> bool:
    """Whether parsed fields are a line of an export: its first one, or one of a chat."""
    ids = as_list(fields.get("chat"))
    is_chat_s = type(fields.get("position")) is int and len(ids) == len(attrs.fields(ChatKey))
    return fields.get("export") == FORMAT or is_chat_s


def resume_point_of(line: bytes) -> ResumePoint | None:
    """Return where to resume after an export's last complete line; None after the header.

    Raises:
        CorruptedRecordError: it is not a line of an export.
    """
    fields = parse(line, location="its last line")
    if "export" in fields:
        return None
    try:
        key, position = _key_and_position(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptedRecordError(f"it is not a line of an export: {error!r}") from error
    return ResumePoint(key, fields.get("through", position), "ends" in fields)


FORM: Final = "agent-memory export"


def read(path: Path, _ids: DefaultIds, tally: Tally) -> Iterator[SourceEntry | ChatEnd | Finding]:
    """Read an exported file. Its lines name their chats, so that no ids are needed.

    Raises:
        OSError: it cannot be read.
    """
    chat: ChatKey | None = None
    # The position of the chat's next line; None where any line may follow: at the beginning, after
    # the end of a chat, and after a bad line, which may be the expected one.
    expected: int | None = None
    place = str(path)
    for line in read_lines(path):
        place = line.place
        try:
            fields = parse(line.text, location="this line")
            if fields.get("export") == FORMAT:
                if chosen := selected_in(fields):
                    raise InvalidRequestError(f"{_PART} ({chosen})")
                continue
            key, position = _key_and_position(fields)
            entry = None if "ends" in fields else _entry(fields, position, key)
        except (AgentMemoryError, KeyError, TypeError, ValueError) as error:
            expected = None
            yield Finding(place, _reason(error))
            continue
        position += entry is None  # the end repeats the chat's last position
        if expected is not None and key != chat:
            yield Finding(place, f"the lines before it lack the end of the chat of {chat}")
        elif expected is not None and position > expected:
            missing = position - expected
            yield Finding(place, f"{missing} lines of the chat are missing before it")
        chat, expected = key, None if entry is None else position + 1
        if entry is None:
            yield from _end(line, key, fields)
        else:
            tally.read[FORM] += 1
            yield line.holding(key, entry)
    if expected is not None:
        yield Finding(place, f"{_CUT} of {chat}")


def _end(line: Line, key: ChatKey, fields: dict[str, Any]) -> Iterator[ChatEnd | Finding]:
    records: list[SummaryRecord] = []
    # Parsed again without resolving tags: decode_record resolves those of each record itself.
    given = json.loads(line.text)["summaries"] if fields.get("summaries") else ()
    for number, item in enumerate(given, 1):
        location = f"number {number} of this line"
        try:
            records.append(decode_record(json.dumps(item), key.agent_id, location=location))
        except AgentMemoryError as error:  # the chat's messages are stored all the same
            yield Finding(line.place, f"a summary record: {error}")
    yield ChatEnd(key, records, line.end)


_PART: Final = "it is an export of parts of chats, for reading; an import needs a whole one"
_CUT: Final = "the file ends in the middle of the chat"


def _reason(error: Exception) -> str:
    return (
        str(error) if isinstance(error, AgentMemoryError) else f"no line of an export: {error!r}"
    )


def _key_and_position(fields: dict[str, Any]) -> tuple[ChatKey, int]:
    user_id, session_id, agent_id = fields["chat"]
    position = fields["position"]
    if type(position) is not int or position < 0:
        raise ValueError("its position is not a whole number")
    return chat_key(user_id, session_id, agent_id), position


def _entry(fields: dict[str, Any], position: int, key: ChatKey) -> Entry:
    if "unreadable" in fields:
        raise InvalidRequestError(
            f"the exported store could not read position {position} of the chat of {key} "
            f"({fields['unreadable']})"
        )
    plain = fields["entry"]
    if plain.pop("v") > 1:
        raise InvalidRequestError("it was written by a newer version: upgrade this one")
    if "note" in plain:
        note = Note(plain["note"], plain["data"], id=plain["id"], timestamp=_time(plain))
        return note.placed(position, key.agent_id)
    if plain.keys() == _PLAIN and plain["role"] in ROLES:
        # Fast path: most messages have only these fields, and the constructor would validate
        # the absent ones as well.
        fields = {
            "role": ROLES[plain["role"]],
            "content": freeze(plain["content"]),
            "id": check_id(plain["id"], "id"),
            "timestamp": utc_timestamp(_time(plain)),
            **_ABSENT,
        }
        return bare_message(fields, position, key.agent_id)
    usage: Any = plain.pop("usage", None)
    plain["timestamp"] = _time(plain)
    message = ConversationMessage(**plain, usage=None if usage is None else Usage(**usage))
    return message.placed(position, key.agent_id)


def _time(plain: dict[str, Any]) -> Any:
    return datetime.fromisoformat(plain["timestamp"])
