"""Writing chats to files: lossless and resumable, in OpenAI's format, or as Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from agent_memory.audit import jsonl
from agent_memory.audit.chunks import ExportCounts, ExportWriter
from agent_memory.audit.escaping import one_line, safe_json, visible
from agent_memory.audit.log_pages import Hole, LogItem, each_of, hole_text, note_text, part_text
from agent_memory.audit.selection import WHOLE, Scope, Selection
from agent_memory.errors import AgentMemoryError, CorruptedRecordError, InvalidRequestError
from agent_memory.log import ChatInfo, Entry, Note
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Part, convert, parts
from agent_memory.providers.part import to_json
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import parse
from agent_memory.storage.merging import merge_streams
from agent_memory.turns import facts_of

ExportFormat: TypeAlias = Literal["jsonl", "openai", "openai-json", "markdown"]
"""``jsonl`` is lossless; ``openai`` a conversation a line; ``openai-json`` a list of them."""

_TAIL: Final = 1 << 16


async def export(
    storage: ChatStorage,
    scope: Scope,
    out: BinaryIO,
    form: ExportFormat,
    *,
    since: jsonl.ResumePoint | None = None,
    selection: Selection = WHOLE,
    on_hole: Callable[[Hole], object] = str,
    on_progress: Callable[[int], object] = abs,
) -> ExportCounts:
    """Write chats in a format; positions that cannot be read are marked in their places.

    Args:
        storage: where they are.
        scope: which of them.
        out: where to write; nothing of it is read.
        form: how.
        since: for ``jsonl``: where an earlier export ended, which has written the header.
        selection: what of each chat. Where it leaves something out, the output says so, and the
            result is not lossless in any format.
        on_hole: called for positions that cannot be read; may raise.
        on_progress: called with the number of entries written, piece by piece.
    """
    writer = ExportWriter(out, on_hole, on_progress)
    if form == "jsonl":
        if since is None:
            writer.write(jsonl.header(selection) + "\n")
        await jsonl.write_lines(storage, scope, writer, since=since, selection=selection)
    elif form == "markdown":
        await _write_documents(storage, scope, writer, selection)
    else:
        is_list = form == "openai-json"
        await _write_conversations(storage, scope, writer, selection, is_list=is_list)
    return writer.counts


async def _write_documents(
    storage: ChatStorage, scope: Scope, writer: ExportWriter, selection: Selection
) -> None:
    session: list[ChatInfo] = []
    async for info in scope.chats(storage):
        if session and _session_of(session[0]) != _session_of(info):
            await _write_markdown(storage, session, writer, selection)
            session = []
        session.append(info)
    if session:
        await _write_markdown(storage, session, writer, selection)


def _session_of(info: ChatInfo) -> tuple[str, str]:
    return info.key.user_id, info.key.session_id


async def _write_conversations(
    storage: ChatStorage,
    scope: Scope,
    writer: ExportWriter,
    selection: Selection,
    *,
    is_list: bool,
) -> None:
    opening, between, end = ("[\n", ",\n", "\n]\n") if is_list else ("", "\n", "\n")
    is_empty = True
    async for info in scope.chats(storage):
        before = opening if is_empty else between
        if await _write_conversation(storage, info, writer, selection, before):
            is_empty = False
    if not is_empty:
        writer.write(end)
    elif is_list:
        writer.write("[]\n")


def resume_at(path: Path) -> jsonl.ResumePoint | None:
    """Cut the torn end off an interrupted export, and return where to resume.

    Returns:
        None if only its header is there.

    Raises:
        InvalidRequestError: the file is not such an export.
        OSError: it cannot be read or cut.
    """
    with path.open("r+b") as file:
        try:
            header = parse(file.readline())
            if "export" not in header:
                raise CorruptedRecordError("its first line is not the header of an export")
            if jsonl.selected_in(header):
                raise CorruptedRecordError("it holds parts of chats; export them again")
            start, line = _last_line(file)
            # Only a line with its line feed counts: what follows the last one was torn by the
            # interruption.
            place = jsonl.resume_point_of(line)
            if place is None and start:
                raise CorruptedRecordError("its last line is the first one of another export")
        except AgentMemoryError as error:
            raise InvalidRequestError(f"{path} cannot be resumed: {error}") from error
        # With only the header there, nothing is worth keeping: the export begins again.
        file.truncate(0 if place is None else start + len(line) + 1)
    return place


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Return the last line that has its end, without that, and where it begins."""
    size = file.seek(0, os.SEEK_END)
    end = _last_break(file, size)
    start = _last_break(file, end) + 1
    file.seek(start)
    return start, file.read(end - start)


def _last_break(file: BinaryIO, before: int) -> int:
    """Return where the last line feed before a place is; -1 for none."""
    # Backwards in blocks: an export may be many gigabytes, and only its last line is needed.
    while before > 0:
        start = max(0, before - _TAIL)
        file.seek(start)
        at = file.read(before - start).rfind(b"\n")
        if at >= 0:
            return start + at
        before = start
    return -1


_SEGMENT: Final = 200


async def _write_conversation(
    storage: ChatStorage,
    info: ChatInfo,
    writer: ExportWriter,
    selection: Selection,
    before: str,
) -> bool:
    """Write a chat as one line of OpenAI's format, piece by piece.

    A selection is named in the line (``selected``); where nothing of a chat
    is selected, there is no line.

    Messages of other providers' forms are converted. Summaries, ids, timestamps and metadata are
    not carried: use the lossless form for those. Notes, and positions that cannot be read, stand
    in lists of their own, ``notes`` and ``holes``, where the format has a place for them: each
    says its position, and before which of the messages (``before``, an index) it is.

    Returns:
        Whether there is a line; `before` is written before it.
    """
    key = info.key
    items = await selection.begun(each_of(storage, info))
    if items is None:
        return False
    names: dict[str, Any] = {
        "id": key.session_id,
        "user_id": key.user_id,
        "agent_id": key.agent_id,
        **({"selected": selection.as_dict()} if selection else {}),
    }
    writer.write(before + safe_json(to_json(names))[:-1] + ', "messages": [')
    separator, count = "", 0
    marks: dict[str, list[dict[str, Any]]] = {"notes": [], "holes": []}
    # Conversion pairs calls with results within one list, so that segments end between
    # exchanges.
    async for segment in _segments(items):
        if isinstance(segment, Hole):
            writer.tell(segment)
            reason = f"{segment.place}: {segment.reason}"
            place = {"position": segment.first, "through": segment.last, "before": count}
            marks["holes"].append({**place, "unreadable": reason})
            writer.write("", segment.count)
        elif isinstance(segment, Note):
            said = {"note": segment.kind, "data": segment.data}
            marks["notes"].append({"position": segment.position, "before": count, **said})
            writer.write("", 1)
        else:
            converted = convert(segment, "openai")
            count += len(converted.messages)
            texts = [safe_json(to_json(message)) for message in converted.messages]
            text = separator + ", ".join(texts) if texts else ""
            separator = ", " if text else separator
            writer.write(text, len(segment), len(converted.left_out))
    held = {name: listed for name, listed in marks.items() if listed}
    lists = "".join([f', "{name}": {safe_json(to_json(held[name]))}' for name in held])
    writer.write(f"]{lists}}}")
    return True


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
        if facts is None or facts.is_question:
            waits = set()  # the conversation moved on: earlier calls get no result
        is_enough = facts is None or notes or (facts.is_question and len(held) >= _SEGMENT)
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


_FENCE: Final = re.compile(r"`+")
_SPECIAL: Final = {ord(sign): f"\\{sign}" for sign in "\\`*_{}[]()#+!|<>~&-"}


async def _write_markdown(
    storage: ChatStorage, infos: Sequence[ChatInfo], writer: ExportWriter, selection: Selection
) -> None:
    """Write a session as Markdown, a message, note or hole at a time.

    What was said stands in fenced blocks, as it was written. The chats of several agents are
    merged into one transcript, as they were spoken.

    Args:
        storage: where they are.
        infos: the session's chats, at least one.
        writer: what writes.
        selection: what of them; where nothing is, nothing is written.
    """
    streams = {info.key.agent_id: each_of(storage, info) for info in infos}
    items = await selection.begun(merge_streams(streams))
    if items is None:
        return
    writer.write(_title(infos, selection))
    several = len(infos) > 1
    async for item in items:
        if isinstance(item, Hole):
            writer.tell(item)
            agent = f" · {_escaped(item.key.agent_id)}" if several else ""
            head = f"\n## {_escaped(item.positions)} · hole{agent}\n"
            writer.write(f"{head}\n**{_escaped(hole_text(item))}**\n", item.count)
        else:
            agent = f" · {_escaped(item.agent_id or '')}" if several else ""
            writer.write(_section(item, agent), 1)
    writer.write("\n")


def _title(infos: Sequence[ChatInfo], selection: Selection) -> str:
    key = infos[0].key
    agents = ", ".join([_escaped(info.key.agent_id) for info in infos])
    word = "agent" if len(infos) == 1 else "agents"
    subtitle = f"User {_escaped(key.user_id)}, {word} {agents}"
    chosen = [f"{name} {_escaped(value)}" for name, value in selection.as_dict().items()]
    part = f"\nNot all of it: {', '.join(chosen)}\n" if chosen else ""
    return f"# {_escaped(key.session_id)}\n\n{subtitle}\n{part}"


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
        return f"\nCalls the tool {name}:\n{_fenced(part_text(part))}"
    if part.kind == "result":
        outcome = "The tool failed" if part.is_error else "The tool answered"
        return f"\n{outcome}:\n{_fenced(part.text)}"
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
