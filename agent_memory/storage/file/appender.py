"""Appending to a chat's file: one lock, one write and one sync for all that wait."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, TypeAlias, cast

import attrs

from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, same_payload
from agent_memory.storage._engine.append_plan import conflict
from agent_memory.storage._engine.handoff import own_copy
from agent_memory.storage.codec import encode_entry
from agent_memory.storage.file.chat_log import (
    KNOWN,
    FileSnapshot,
    find_log_end,
    known_refs,
    read_header,
)
from agent_memory.storage.file.directory import ChatPaths, paths_of
from agent_memory.storage.file.disk import (
    Durability,
    UncertainError,
    end_at,
    interrupted,
    sync_behind,
    sync_directory,
    sync_file,
    unavailable,
    write_behind,
)
from agent_memory.storage.file.line_format import (
    EntryRef,
    HeaderLine,
    StoredEntry,
    encode_header,
    encode_line,
    parse_line,
)
from agent_memory.storage.file.lock import ChatLock, release

Batch: TypeAlias = Sequence[Entry]
"""What one save appends."""

Encoded: TypeAlias = list[tuple[Entry, str]]
"""A batch, each entry with its text."""

Outcome: TypeAlias = LogSlice | Exception
"""What one save is told."""


def encoded(batch: Batch) -> Encoded | Exception:
    """Encode a batch; return the error if it cannot be, so that it fails alone."""
    try:
        return [(entry, encode_entry(entry)) for entry in batch]
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, others can be stored
        return error


@attrs.define(eq=False)
class Plan:
    """What a group of batches will add to a file.

    Args:
        key: which chat.
        file: its file, whose lock is held.
        state: what the file holds.

    Attributes:
        data: the bytes to write behind it.
        refs: of the entries in them.
        fresh: these entries as they will be stored, by id.
    """

    key: ChatKey
    file: FileIO
    state: LogState
    data: bytearray = attrs.field(factory=bytearray, init=False)
    refs: list[EntryRef] = attrs.field(factory=list[EntryRef], init=False)
    fresh: dict[str, Entry] = attrs.field(factory=dict[str, Entry], init=False)

    def __attrs_post_init__(self) -> None:
        if self.state.end == 0:
            self.data += encode_header(HeaderLine(self.key))

    def add(self, batch: Encoded) -> LogSlice:
        """Add a batch, and return what will then be stored under its ids.

        Raises:
            StorageConflictError: an id is known with another payload; nothing is added.
        """
        known = [self._known(entry) for entry, _ in batch]
        first = self.state.last + len(self.refs) + 1
        count = known.count(None)
        stored = [
            self._place(entry, text, first, count) if before is None else before
            for (entry, text), before in zip(batch, known, strict=True)
        ]
        return LogSlice(stored, self.state.floor)

    def _known(self, entry: Entry) -> Entry | None:
        known = self.fresh.get(entry.id)
        if known is None:
            known = self.state.stored(self.file, entry.id, self.key.agent_id)
        if known is not None and not same_payload(known, entry):
            raise conflict(self.key, entry.id)
        return known

    def _place(self, entry: Entry, text: str, first: int, count: int) -> Entry:
        position = self.state.last + len(self.refs) + 1
        start = self.state.end + len(self.data)
        line = encode_line(text, position, first, count)
        is_note = isinstance(entry, Note)
        ref = EntryRef(position, first, count, entry.id, is_note, start, start + len(line) - 1)
        placed = entry.placed(position, self.key.agent_id)
        self.data += line
        self.refs.append(ref)
        self.fresh[entry.id] = placed
        return placed

    def outcome(self, batch: Encoded | Exception) -> Outcome:
        """Do the same, and return the error if the batch cannot be added."""
        if isinstance(batch, Exception):
            return batch
        size, count = len(self.data), len(self.refs)
        try:
            return self.add(batch)
        except Exception as error:  # noqa: BLE001 - a batch in conflict fails alone
            # Out of memory in the midst of it, say: no part of the batch may stay.
            del self.data[size:]
            for ref in self.refs[count:]:
                self.fresh.pop(ref.id, None)
            del self.refs[count:]
            return error


logger = logging.getLogger(__name__)

_CHATS: Final = 1024  # how many chats' states are kept, some 10 KB each
_Stamp: TypeAlias = tuple[int, int, int, int]


def stamp_of(stat: os.stat_result) -> _Stamp:
    """Return what differs between a file and the same file after anybody's write."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


@attrs.define(eq=False)
class LogState:
    """What a chat's file holds, as far as an append needs it.

    Args:
        floor: every position up to it has been trimmed or deleted.
        last: the newest position.
        end: where the next line goes.
        known: id -> ref of the newest entries, oldest first.
        is_durable: whether its names and bytes are known to be on the disk.
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
        """Return the entry that is in the file under an id; None if none that can be read is."""
        ref = self.known.get(entry_id)
        if ref is None:
            return None
        file.seek(ref.start)
        parsed = parse_line(file.read(ref.stop - ref.start), ref.start, agent_id)
        if isinstance(parsed, StoredEntry) and parsed.ref.id == entry_id:
            return parsed.entry
        return None

    def grow(self, refs: Iterable[EntryRef], size: int) -> None:
        """Take over what was appended: `size` bytes with these refs."""
        batch = 1
        for ref in refs:
            self._drop(ref.id)  # one that cannot be read; the newest under an id comes last
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
    """The states of the chats written to last. Taken out while it is used, so never shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[str, tuple[_Stamp, LogState]] = OrderedDict()

    def take(self, path: str, stat: os.stat_result) -> LogState | None:
        """Return and remove a chat's state, if nobody wrote to the file since."""
        with self._lock:
            stamp, state = self._states.pop(path, (None, None))
        return state if stamp == stamp_of(stat) else None

    def put(self, path: str, stat: os.stat_result, state: LogState) -> None:
        """Keep a chat's state."""
        with self._lock:
            self._states[path] = stamp_of(stat), state
            if len(self._states) > _CHATS:
                self._states.popitem(last=False)


def load_state(file: FileIO, paths: ChatPaths, key: ChatKey) -> LogState:
    """Find the state of a chat whose lock is held, and remove what crashed writers left.

    Raises:
        CorruptedRecordError: a newer version wrote the file, or it is another chat's.
        OSError: it cannot be read or repaired.
    """
    with suppress(FileNotFoundError):
        os.unlink(paths.temporary)  # noqa: PTH108 - a string
    snapshot = FileSnapshot(file)
    head = read_header(snapshot, paths.log, key)
    tail = find_log_end(snapshot, head, key.agent_id)
    refs = known_refs(snapshot, head, tail, key.agent_id)
    if tail.end == snapshot.size and snapshot.lacks_end:
        end_at(file, tail.end)
    elif tail.end < snapshot.size:
        file.truncate(tail.end)
        logger.warning(
            "%s: %d bytes of a save that never ended were cut at byte %d",
            paths.log,
            snapshot.size - tail.end,
            tail.end,
        )
    return LogState(head.floor, tail.last, tail.end, {ref.id: ref for ref in refs})


@attrs.frozen
class Appender:
    """Appends batches to chats' files.

    Args:
        root: the store's directory.
        cache: what is known of the files.
        lock: how chats are locked.
        durability: what "stored" means.
    """

    root: Path
    cache: StateCache
    lock: ChatLock
    durability: Durability

    def group(self, key: ChatKey, batches: Sequence[Batch]) -> AppendGroup:
        """Return what appends batches to one chat together."""
        return AppendGroup(self, key, paths_of(self.root, key), batches)


@attrs.define(eq=False)
class AppendGroup:
    """Batches that are appended to one chat together, whole with :meth:`run` or in three steps.

    The steps are for one thread that appends to several chats: :meth:`begin` writes,
    :meth:`sync` waits for the disk, :meth:`end` gives the chat back. No method raises.

    Args:
        appender: who appends.
        key: which chat.
        paths: its files.
        batches: in the order in which they are to be stored.

    Attributes:
        outcomes: what each batch's caller is told; empty until that is known.
    """

    appender: Appender
    key: ChatKey
    paths: ChatPaths
    batches: Sequence[Batch]
    outcomes: list[Outcome] = attrs.field(factory=list[Outcome], init=False)
    _encoded: list[Encoded | Exception] = attrs.field(init=False)
    _file: FileIO | None = attrs.field(default=None, init=False)
    _plan: Plan | None = attrs.field(default=None, init=False)
    _planned: list[Outcome] = attrs.field(factory=list[Outcome], init=False)

    def run(self) -> None:
        """Append them; wait for other processes that hold the chat."""
        if not self._encode():
            return
        try:
            with self.appender.lock.hold(self.paths, self.key) as file:
                plan = self._write(file)
                self._bring_to_disk(plan)
                self._remember(plan)
        except Exception as error:  # noqa: BLE001 - else whoever waits would wait for ever
            if not self.outcomes:
                self._fail(error)

    def begin(self) -> None:
        """Write them, unless the chat is new or another process holds it: then do nothing."""
        if not self._encode():
            return
        try:
            self._file = self.appender.lock.take_free(self.paths)
        except Exception:  # noqa: BLE001 - run() meets it again, and tells
            return
        if self._file is not None:
            try:
                self._write(self._file)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)

    def sync(self) -> None:
        """Bring to the disk what :meth:`begin` wrote."""
        if self._plan is not None:
            try:
                self._bring_to_disk(self._plan)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)

    def end(self) -> None:
        """Give back the chat that :meth:`begin` took."""
        if self._plan is not None:
            try:
                self._remember(self._plan)
            except Exception as error:  # noqa: BLE001 - as above
                if not self.outcomes:
                    self._fail(error)
        if self._file is not None:
            release(self._file)
            self._file = None

    def _encode(self) -> bool:
        """Encode the batches; return whether there is anything to store."""
        self._encoded = [*map(encoded, self.batches)]
        errors = [batch for batch in self._encoded if isinstance(batch, Exception)]
        if len(errors) == len(self._encoded):
            self.outcomes = [*errors]
        return not self.outcomes

    def _fail(self, error: Exception) -> None:
        """Have every batch's caller told, but those whose batch has an error of its own."""
        self._plan = None
        self.outcomes = [
            batch if isinstance(batch, Exception) else self._told(error) for batch in self._encoded
        ]

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, OSError):
            return unavailable(error, self.key, "saving to the chat")
        return cast("Exception", own_copy(error))

    def abandon(self, error: BaseException) -> None:
        """Have every batch's caller told that something ended the thread's work."""
        if not self.outcomes:
            self.outcomes = [interrupted(self.key, error) for _ in self.batches]
        if self._file is not None:
            release(self._file)
            self._file = None

    # ------------------------------------------------------------ each with the chat's lock held

    def _write(self, file: FileIO) -> Plan:
        state = self.appender.cache.take(self.paths.log, os.fstat(file.fileno()))
        state = load_state(file, self.paths, self.key) if state is None else state
        plan = Plan(self.key, file, state)
        try:
            self._planned = [plan.outcome(batch) for batch in self._encoded]
            if plan.refs:
                write_behind(file, state.end, plan.data)
        except BaseException:
            self._remove_if_empty(plan)
            raise
        self._plan = plan
        return plan

    def _bring_to_disk(self, plan: Plan) -> None:
        state, durability = plan.state, self.appender.durability
        try:
            if plan.refs:
                sync_behind(plan.file, state.end, durability)
            elif not state.is_durable:
                # All were known. Whoever wrote them may have crashed before the disk had them.
                sync_file(plan.file.fileno(), durability)
            if not state.is_durable:
                self._sync_names()
                state.is_durable = True
        except BaseException:
            self._remove_if_empty(plan)
            raise

    def _sync_names(self) -> None:
        """Bring the names of a file that another may have made to the disk."""
        try:
            for directory in self.paths.directories:
                sync_directory(directory, self.appender.durability)
        except OSError as error:
            raise UncertainError(*error.args) from error

    def _remember(self, plan: Plan) -> None:
        if plan.refs:
            plan.state.grow(plan.refs, len(plan.data))
        self._remove_if_empty(plan)
        self.outcomes = self._planned
        if plan.state.end:
            with suppress(OSError):  # it is stored all the same, and read anew by the next save
                stat = os.fstat(plan.file.fileno())
                self.appender.cache.put(self.paths.log, stat, plan.state)

    def _remove_if_empty(self, plan: Plan) -> None:
        if plan.state.end == 0:  # nothing was written to a new file
            with suppress(OSError):
                os.unlink(self.paths.log)  # noqa: PTH108 - a string
