"""Writing chats to files: lossless and resumable, in OpenAI's format, or as Markdown."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias

import attrs

from agent_memory.audit import jsonl
from agent_memory.audit.chunks import Piece
from agent_memory.audit.log import Hole
from agent_memory.audit.markdown import markdown_of
from agent_memory.audit.openai_files import conversation_of
from agent_memory.audit.selecting import WHOLE, Selection
from agent_memory.errors import AgentMemoryError, CorruptedRecordError, InvalidRequestError
from agent_memory.records import ChatInfo
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import parse

ExportFormat: TypeAlias = Literal["jsonl", "openai", "openai-json", "markdown"]
"""``jsonl`` is lossless; ``openai`` a conversation a line; ``openai-json`` a list of them."""

_TAIL: Final = 1 << 16


@attrs.frozen
class Scope:
    """Which chats: all, those of a user, of a session, or one.

    Raises:
        InvalidRequestError: an id is given without those before it.
    """

    user_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.agent_id is not None and self.session_id is None) or (
            self.session_id is not None and self.user_id is None
        ):
            raise InvalidRequestError("give user, session and agent in this order")

    async def chats(self, storage: ChatStorage) -> AsyncIterator[ChatInfo]:
        """Yield these chats of a store, in key order."""
        async for info in storage.list_chats(self.user_id, self.session_id):
            if self.agent_id in (None, info.key.agent_id):
                yield info


@attrs.define
class Exported:
    """What an export came to.

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
    since: jsonl.Place | None = None,
    selection: Selection = WHOLE,
    on_hole: Callable[[Hole], object] = str,
    on_progress: Callable[[int], object] = abs,
) -> Exported:
    """Write chats in a format; positions that cannot be read are marked in their places.

    Args:
        storage: where they are.
        scope: which of them.
        out: where to write; nothing of it is read.
        form: how.
        since: for ``jsonl``: how far an earlier export has come; its header is written then.
        selection: what of each chat. Where it leaves something out, the output says so, and the
            result is not lossless in any format.
        on_hole: told of positions that cannot be read; may raise.
        on_progress: told how many entries were written, piece by piece.
    """
    done = Exported()
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
    since: jsonl.Place | None,
    selection: Selection,
) -> AsyncIterator[Piece | Hole]:
    if form == "jsonl":
        ids = scope.user_id, scope.session_id, scope.agent_id
        return jsonl.lines_of(storage, *ids, since=since, selection=selection)
    if form == "markdown":
        return _documents(storage, scope, selection)
    return _conversations(storage, scope, selection, is_list=form == "openai-json")


async def _documents(
    storage: ChatStorage, scope: Scope, selection: Selection
) -> AsyncIterator[Piece | Hole]:
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
) -> AsyncIterator[Piece | Hole]:
    first = True
    async for info in scope.chats(storage):
        is_empty = True
        async for piece in conversation_of(storage, info, selection):
            if is_empty and is_list:
                yield Piece("[\n" if first else ",\n")
            is_empty = False
            yield piece
        if not is_empty:
            first = False
            yield Piece("" if is_list else "\n")
    if is_list:
        yield Piece("[]\n" if first else "\n]\n")


def resume_at(path: Path) -> jsonl.Place | None:
    """Cut the torn end off an export that was interrupted, and say how far it has come.

    Returns:
        None if nothing but its first line is there.

    Raises:
        InvalidRequestError: the file is no such export.
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
            place = jsonl.place_of(line)
            if place is None and start:
                raise CorruptedRecordError("its last line is the first one of another export")
        except AgentMemoryError as error:
            raise InvalidRequestError(f"{path} cannot be resumed: {error}") from error
        # Where nothing but the first line is there, it is written anew.
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
    while before > 0:
        start = max(0, before - _TAIL)
        file.seek(start)
        at = file.read(before - start).rfind(b"\n")
        if at >= 0:
            return start + at
        before = start
    return -1
