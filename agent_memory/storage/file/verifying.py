"""Looking through chats' files for damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import decode_record
from agent_memory.storage.file.disk import open_to_read
from agent_memory.storage.file.lines import Bad
from agent_memory.storage.file.listing import CLOSED
from agent_memory.storage.file.lock import nobody_writes
from agent_memory.storage.file.log import head_of, pieces_after, tail_of
from agent_memory.storage.file.names import ChatPaths
from agent_memory.storage.file.reading import Gapless
from agent_memory.storage.file.source import BLOCK, ChangedError, Source, lines

_ATTEMPTS: Final = 10


@attrs.frozen
class Problem:
    """Something in a store that is not as it was written.

    Args:
        key: the chat concerned, where that is known.
        location: where it is: file, line and byte.
        reason: what is wrong with it.
    """

    key: ChatKey | None
    location: str
    reason: str


def problems_of(paths: ChatPaths, key: ChatKey) -> list[Problem]:
    """Return what is wrong with a chat's files. Nothing is changed, no lock is kept.

    What changes while it is looked at is looked at again: only damage that stays is told.
    """
    before: list[Problem] | None = None
    for _ in range(_ATTEMPTS):
        try:
            found = [*_log_problems(paths, key), *_summary_problems(paths, key)]
        except ChangedError:
            continue
        except CLOSED as error:
            return [Problem(key, paths.log, f"it cannot be read: {error}")]
        if not found or found == before:
            return found
        before = found
    return before or []


def _log_problems(paths: ChatPaths, key: ChatKey) -> Iterator[Problem]:
    with suppress(FileNotFoundError), open_to_read(paths.log) as file:
        source = Source(file)
        try:
            found = _damage(source, paths.log, key)
        except CorruptedRecordError as error:
            yield Problem(key, paths.log, str(error))
            return
        if nobody_writes(file.fileno()):
            found += _leftovers(source, paths, key)
        for bad in found:
            yield Problem(key, _location(source, paths.log, bad.start), bad.reason)
        if Path(paths.temporary).exists() and nobody_writes(file.fileno()):
            reason = "left by a trim that never ended; the next save or trim removes it"
            yield Problem(key, paths.temporary, reason)


def _damage(source: Source, path: str, key: ChatKey) -> list[Bad]:
    head = head_of(source, path, key)
    tail = tail_of(source, head, key.agent_id)
    gapless = Gapless(key.agent_id, path)
    if head.bad is not None:
        gapless.bad.append(head.bad)
    pieces = pieces_after(source, head, tail, head.floor, key.agent_id)
    for _ in gapless.entries(pieces, head.floor, tail.last):
        pass  # only the damage is of interest
    return gapless.bad


def _leftovers(source: Source, paths: ChatPaths, key: ChatKey) -> list[Bad]:
    end = tail_of(source, head_of(source, paths.log, key), key.agent_id).end
    left = source.size - end
    reason = f"{left} bytes of a save that never ended; the next save cuts them"
    return [Bad(end, source.size, reason)] if left else []


def _summary_problems(paths: ChatPaths, key: ChatKey) -> Iterator[Problem]:
    with suppress(FileNotFoundError), open_to_read(paths.summaries) as file:
        source = Source(file)
        for at, line in lines(source, 0, source.size):
            place = _location(source, paths.summaries, at)
            try:
                decode_record(line, key.agent_id, location=place)
            except CorruptedRecordError as error:
                yield Problem(key, place, str(error.__cause__ or error))


def _location(source: Source, path: str, at: int) -> str:
    line = 1
    for start in range(0, at, BLOCK):
        line += source.read(start, min(start + BLOCK, at)).count(b"\n")
    return f"{path}, line {line}, byte {at}"
