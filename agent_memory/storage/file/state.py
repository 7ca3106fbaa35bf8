"""What a writer must know of a chat's file to append to it, kept while nobody else writes."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from typing import Final, TypeAlias

import attrs

from agent_memory.messages import ChatKey
from agent_memory.records import Entry
from agent_memory.storage.file.disk import end_at
from agent_memory.storage.file.lines import Mark, Record, pieces_of
from agent_memory.storage.file.log import KNOWN, head_of, known_of, tail_of
from agent_memory.storage.file.names import ChatPaths
from agent_memory.storage.file.source import Source

logger = logging.getLogger(__name__)

_CHATS: Final = 1024  # how many chats' states are kept, some 10 KB each
_Stamp: TypeAlias = tuple[int, int, int, int]


def stamp_of(stat: os.stat_result) -> _Stamp:
    """Return what differs between a file and the same file after anybody's write."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


@attrs.define(eq=False)
class State:
    """What a chat's file holds, as far as an append needs it.

    Args:
        floor: every position up to it has been trimmed or deleted.
        last: the newest position.
        end: where the next line goes.
        known: id -> mark of the newest entries, oldest first.
        settled: whether its names and bytes are known to be on the disk.
    """

    floor: int
    last: int
    end: int
    known: dict[str, Mark]
    settled: bool = False
    _messages: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._messages = sum(not mark.is_note for mark in self.known.values())

    def stored(self, file: FileIO, entry_id: str, agent_id: str) -> Entry | None:
        """Return the entry that is in the file under an id; None if none that can be read is."""
        mark = self.known.get(entry_id)
        if mark is None:
            return None
        file.seek(mark.start)
        for piece in pieces_of(file.read(mark.stop - mark.start), mark.start, agent_id):
            if isinstance(piece, Record) and piece.mark.id == entry_id:
                return piece.entry
        return None

    def grow(self, marks: Iterable[Mark], size: int) -> None:
        """Take over what was appended: `size` bytes with these marks."""
        batch = 1
        for mark in marks:
            self._drop(mark.id)  # one that cannot be read; the newest under an id comes last
            self.known[mark.id] = mark
            self._messages += not mark.is_note
            self.last = mark.position
            batch = mark.batch_length
        self.end += size
        while self._messages > max(KNOWN, batch):
            self._drop(next(iter(self.known)))

    def _drop(self, entry_id: str) -> None:
        mark = self.known.pop(entry_id, None)
        if mark is not None:
            self._messages -= not mark.is_note


class StateCache:
    """The states of the chats written to last. Taken out while it is used, so never shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[str, tuple[_Stamp, State]] = OrderedDict()

    def take(self, path: str, stat: os.stat_result) -> State | None:
        """Return and remove a chat's state, if nobody wrote to the file since."""
        with self._lock:
            stamp, state = self._states.pop(path, (None, None))
        return state if stamp == stamp_of(stat) else None

    def put(self, path: str, stat: os.stat_result, state: State) -> None:
        """Keep a chat's state."""
        with self._lock:
            self._states[path] = stamp_of(stat), state
            if len(self._states) > _CHATS:
                self._states.popitem(last=False)


def load_state(file: FileIO, paths: ChatPaths, key: ChatKey) -> State:
    """Find the state of a chat whose lock is held, and remove what crashed writers left.

    Raises:
        CorruptedRecordError: a newer version wrote the file, or it is another chat's.
        OSError: it cannot be read or repaired.
    """
    with suppress(FileNotFoundError):
        os.unlink(paths.temporary)  # noqa: PTH108 - a string
    source = Source(file)
    head = head_of(source, paths.log, key)
    tail = tail_of(source, head, key.agent_id)
    marks = known_of(source, head, tail, key.agent_id)
    if tail.end == source.size and source.lacks_end:
        end_at(file, tail.end)
    elif tail.end < source.size:
        file.truncate(tail.end)
        logger.warning(
            "%s: %d bytes of a save that never ended were cut at byte %d",
            paths.log,
            source.size - tail.end,
            tail.end,
        )
    return State(head.floor, tail.last, tail.end, {mark.id: mark for mark in marks})
