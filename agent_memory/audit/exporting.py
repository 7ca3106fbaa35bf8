"""Writing chats to files: lossless and resumable, in OpenAI's format, or as Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias

import attrs

from agent_memory.audit import jsonl
from agent_memory.audit.chunks import ExportPiece
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


@attrs.define
class ExportCounts:
    """Export statistics.

    Args:
        entries: how many messages and notes were written.
        bad: how many positions could not be read.
        left_out: how many parts of messages have no place in the format.
    """

    entries: int = 0
    bad: int = 0
    left_out: int = 0


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
    done = ExportCounts()
    if form == "jsonl" and since is None:
        out.write(jsonl.header(selection).encode() + b"\n")
    async for piece in _pieces(storage, scope, form, since, selection):
        if isinstance(piece, Hole):
            done.bad += piece.count
            on_hole(piece)
        else:
            out.write(piece.text.encode())
            done.entries += piece.entries
            done.left_out += piece.left_out
            on_progress(piece.entries)
    return done


def _pieces(
    storage: ChatStorage,
    scope: Scope,
    form: ExportFormat,
    since: jsonl.ResumePoint | None,
    selection: Selection,
) -> AsyncIterator[ExportPiece | Hole]:
    if form == "jsonl":
        ids = scope.user_id, scope.session_id, scope.agent_id
        return jsonl.lines_of(storage, *ids, since=since, selection=selection)
    if form == "markdown":
        return _documents(storage, scope, selection)
    return _conversations(storage, scope, selection, is_list=form == "openai-json")


async def _documents(
    storage: ChatStorage, scope: Scope, selection: Selection
) -> AsyncIterator[ExportPiece | Hole]:
    session: list[ChatInfo] = []
    async for info in scope.chats(storage):
        if session and _session_of(session[0]) != _session_of(info):
            async for piece in markdown_of(storage, session, selection):
                yield piece
            session = []
        session.append(info)
    if session:
        async for piece in markdown_of(storage, session, selection):
            yield piece


def _session_of(info: ChatInfo) -> tuple[str, str]:
    return info.key.user_id, info.key.session_id


async def _conversations(
    storage: ChatStorage, scope: Scope, selection: Selection, *, is_list: bool
) -> AsyncIterator[ExportPiece | Hole]:
    first = True
    async for info in scope.chats(storage):
        is_empty = True
        async for piece in conversation_of(storage, info, selection):
            if is_empty and is_list:
                yield ExportPiece("[\n" if first else ",\n")
            is_empty = False
            yield piece
        if not is_empty:
            first = False
            yield ExportPiece("" if is_list else "\n")
    if is_list:
        yield ExportPiece("[]\n" if first else "\n]\n")


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
                raise CorruptedRecordError("its first line is none of an export")
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


async def conversation_of(
    storage: ChatStorage, info: ChatInfo, selection: Selection = WHOLE
) -> AsyncIterator[ExportPiece | Hole]:
    """Yield a chat as one line of OpenAI's format, in pieces.

    A selection is named in the line (``selected``); where nothing of a chat
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
    yield ExportPiece(safe_json(to_json(names))[:-1] + ', "messages": [')
    separator, count = "", 0
    marks: dict[str, list[dict[str, Any]]] = {"notes": [], "holes": []}
    # Conversion pairs calls with results within one list, so that segments end between
    # exchanges.
    async for segment in _segments(items):
        if isinstance(segment, Hole):
            yield segment
            reason = f"{segment.place}: {segment.reason}"
            place = {"position": segment.first, "through": segment.last, "before": count}
            marks["holes"].append({**place, "unreadable": reason})
            yield ExportPiece("", segment.count)
        elif isinstance(segment, Note):
            said = {"note": segment.kind, "data": segment.data}
            marks["notes"].append({"position": segment.position, "before": count, **said})
            yield ExportPiece("", 1)
        else:
            converted = convert(segment, "openai")
            count += len(converted.messages)
            texts = [safe_json(to_json(message)) for message in converted.messages]
            text = separator + ", ".join(texts) if texts else ""
            separator = ", " if text else separator
            yield ExportPiece(text, len(segment), len(converted.left_out))
    held = {name: listed for name, listed in marks.items() if listed}
    lists = "".join([f', "{name}": {safe_json(to_json(held[name]))}' for name in held])
    yield ExportPiece("]" + lists)
    yield ExportPiece("}")


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


async def markdown_of(
    storage: ChatStorage, infos: Sequence[ChatInfo], selection: Selection = WHOLE
) -> AsyncIterator[ExportPiece | Hole]:
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
    yield ExportPiece(_title(infos, selection))
    several = len(infos) > 1
    async for item in items:
        if isinstance(item, Hole):
            yield item
            agent = f" · {_escaped(item.key.agent_id)}" if several else ""
            head = f"\n## {_escaped(item.positions)} · hole{agent}\n"
            yield ExportPiece(f"{head}\n**{_escaped(hole_text(item))}**\n", item.count)
        else:
            agent = f" · {_escaped(item.agent_id or '')}" if several else ""
            yield ExportPiece(_section(item, agent), 1)
    yield ExportPiece("\n")


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
