"""Appending groups of saves to a chat's file: one lock, one write and one fsync a group."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from agent_memory.log import Entry, Note
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.append_plan import (
    AppendPlan,
    Outcome,
    PendingSave,
    append_plan,
)
from agent_memory.storage.file.chat_log import (
    KNOWN,
    ChatLog,
    FileSnapshot,
)
from agent_memory.storage.file.directory import ChatPaths, paths_of
from agent_memory.storage.file.disk import (
    Durability,
    UncertainError,
    end_at,
    os_errors,
    sync_directory,
    sync_file,
    sync_or_undo,
    write_or_undo,
)
from agent_memory.storage.file.line_format import (
    EntryRef,
    FileHeader,
    StoredEntry,
    encode_header,
    encode_line,
    line_prefix,
    parse_line,
)
from agent_memory.storage.file.lock import ChatLock

logger = logging.getLogger(__name__)

_CHATS: Final = 1024  # how many chats' states are kept, some 10 KB each
_Stamp: TypeAlias = tuple[int, int, int, int]


def stamp_of(stat: os.stat_result) -> _Stamp:
    """Return what changes with every write to a file, or when it is replaced."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


@attrs.define(eq=False)
class LogState:
    """What an append needs to know of a chat's file.

    Args:
        floor: every position up to it has been trimmed or deleted.
        last: the newest position.
        end: where the next line goes.
        known: id -> ref of the newest entries, oldest first.
        is_durable: whether its names and bytes are known to be on disk.
    """

    floor: int
    last: int
    end: int
    known: dict[str, EntryRef]
    is_durable: bool = False
    _messages: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._messages = sum(not ref.is_note for ref in self.known.values())

    def stored(self, file: FileIO, entry_id: str, agent_id: str) -> Entry | None:
        """Return the readable entry with an id, or None."""
        ref = self.known.get(entry_id)
        if ref is None:
            return None
        file.seek(ref.start)
        # Read again, not remembered: 64 messages of 1,024 chats could be very large.
        parsed = parse_line(file.read(ref.stop - ref.start), ref.start, agent_id)
        if isinstance(parsed, StoredEntry) and parsed.ref.id == entry_id:
            return parsed.entry
        return None

    def grow(self, refs: Iterable[EntryRef], size: int) -> None:
        """Record an append of `size` bytes with these refs."""
        batch = 1
        for ref in refs:
            self._drop(ref.id)  # an unreadable entry of that id; the newest comes last
            self.known[ref.id] = ref
            self._messages += not ref.is_note
            self.last = ref.position
            batch = ref.batch_length
        self.end += size
        while self._messages > max(KNOWN, batch):
            self._drop(next(iter(self.known)))

    def _drop(self, entry_id: str) -> None:
        ref = self.known.pop(entry_id, None)
        if ref is not None:
            self._messages -= not ref.is_note


class StateCache:
    """The states of recently written chats. A state is taken out while in use, never shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[str, tuple[_Stamp, LogState]] = OrderedDict()

    def take(self, path: str, stat: os.stat_result) -> LogState | None:
        """Remove and return a chat's state, unless the file changed since."""
        with self._lock:
            stamp, state = self._states.pop(path, (None, None))
        return state if stamp == stamp_of(stat) else None

    def put(self, path: str, stat: os.stat_result, state: LogState) -> None:
        """Store a chat's state, evicting the least recently used one if there are too many."""
        with self._lock:
            self._states[path] = stamp_of(stat), state
            if len(self._states) > _CHATS:
                self._states.popitem(last=False)


def load_state(file: FileIO, paths: ChatPaths, key: ChatKey) -> LogState:
    """Read the state of a locked chat, and remove what crashed writers left behind.

    Raises:
        CorruptedRecordError: a newer version wrote the file, or it is another chat's.
        OSError: it cannot be read or repaired.
    """
    with suppress(FileNotFoundError):
        os.unlink(paths.temporary)  # noqa: PTH108 - a string
    snapshot = FileSnapshot(file)
    log = ChatLog(snapshot, paths.log, key)
    refs = log.newest_refs()
    if log.end == snapshot.size and snapshot.lacks_end:
        end_at(file, log.end)
    elif log.end < snapshot.size:
        file.truncate(log.end)
        logger.warning(
            "%s: %d bytes of a save that never ended were cut at byte %d",
            paths.log,
            snapshot.size - log.end,
            log.end,
        )
    return LogState(log.floor, log.last, log.end, {ref.id: ref for ref in refs})


@attrs.frozen
class Appender:
    """Appends groups of saves to chats' files.

    Args:
        root: the store's directory.
        lock: how chats are locked.
        durability: when a save counts as stored.
    """

    root: Path
    lock: ChatLock
    durability: Durability
    cache: StateCache = attrs.field(factory=StateCache, init=False)

    def commit(self, saves: Sequence[PendingSave[Entry]]) -> list[Outcome]:
        """Append a group of saves of one chat, and return the outcome of each.

        A save that cannot be encoded, or that is in conflict, fails alone.
        """
        key = saves[0].key
        encoded = [_encoded(save) for save in saves]
        writable = [save for save in encoded if isinstance(save, PendingSave)]
        if not writable:
            return [save for save in encoded if isinstance(save, Exception)]
        paths = paths_of(self.root, key)
        with (
            os_errors(key, "saving to the chat"),
            self.lock.acquire(paths, key, create=True) as file,
        ):
            outcomes = iter(self._append_locked(file, paths, key, writable))
        return [save if isinstance(save, Exception) else next(outcomes) for save in encoded]

    # ------------------------------------------------------------ with the chat's lock held

    def _append_locked(
        self, file: FileIO, paths: ChatPaths, key: ChatKey, saves: Sequence[PendingSave[bytes]]
    ) -> Sequence[Outcome]:
        state = self.cache.take(paths.log, os.fstat(file.fileno()))
        state = load_state(file, paths, key) if state is None else state
        try:
            plan = _planned(file, key, state, saves)
            refs, data = _lines(key, state, plan)
            if refs:
                write_or_undo(file, state.end, data)
            self._bring_to_disk(file, paths, state, has_written=bool(refs))
            if refs:
                state.grow(refs, len(data))
        finally:
            if state.end == 0:
                with suppress(OSError):  # a new file to which nothing was written
                    os.unlink(paths.log)  # noqa: PTH108 - a string
        if state.end:
            with suppress(OSError):  # stored all the same; the next save reads the state again
                self.cache.put(paths.log, os.fstat(file.fileno()), state)
        return plan.outcomes

    def _bring_to_disk(
        self, file: FileIO, paths: ChatPaths, state: LogState, *, has_written: bool
    ) -> None:
        if has_written:
            sync_or_undo(file, state.end, self.durability)
        elif not state.is_durable:
            # Only known repeats: the process that wrote them may have crashed before its fsync.
            sync_file(file.fileno(), self.durability)
        if not state.is_durable:
            self._sync_names(paths)
            state.is_durable = True

    def _sync_names(self, paths: ChatPaths) -> None:
        """Flush the directory entries: another process may have created the file and crashed."""
        try:
            for directory in paths.directories:
                sync_directory(directory, self.durability)
        except OSError as error:
            raise UncertainError(*error.args) from error


def _encoded(save: PendingSave[Entry]) -> PendingSave[bytes] | Exception:
    # In the worker thread: encoding a large message would block the event loop.
    try:
        return PendingSave(save.key, save.entries, [encode_line(entry) for entry in save.entries])
    except Exception as error:  # noqa: BLE001 - others can be stored
        return error


def _planned(
    file: FileIO, key: ChatKey, state: LogState, saves: Sequence[PendingSave[bytes]]
) -> AppendPlan[bytes]:
    def known(entry: Entry) -> Entry | None:
        if entry.id not in state.known:
            return None
        with os_errors(key, "saving to the chat"):
            return state.stored(file, entry.id, key.agent_id)

    return append_plan(key, state.last, state.floor, saves, known)


def _lines(
    key: ChatKey, state: LogState, plan: AppendPlan[bytes]
) -> tuple[list[EntryRef], bytearray]:
    """Return the refs of the new entries, and the lines to write at the end of the log."""
    data = bytearray(encode_header(FileHeader(key)) if state.end == 0 else b"")
    refs: list[EntryRef] = []
    position = state.last
    for additions in plan.additions:
        first, count = position + 1, len(additions)
        for entry, encoded in additions:
            position += 1
            start = state.end + len(data)
            data += line_prefix(position, first, count)
            data += encoded
            stop = state.end + len(data) - 1
            is_note = isinstance(entry, Note)
            refs.append(EntryRef(position, first, count, entry.id, is_note, start, stop))
    return refs, data
