"""Appending to a chat's file: one lock, one write and one sync for all that wait."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from typing import TypeAlias

import attrs

from agent_memory.errors import AgentMemoryError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, same_payload
from agent_memory.storage.codec import encode_entry
from agent_memory.storage.file.disk import (
    Durability,
    UncertainError,
    append_bytes,
    sync_directory,
    sync_file,
    unavailable,
)
from agent_memory.storage.file.lines import Header, Mark, entry_line, header_line
from agent_memory.storage.file.lock import ChatLock
from agent_memory.storage.file.names import ChatPaths
from agent_memory.storage.file.state import State, StateCache, load_state
from agent_memory.storage.requests import conflict

Batch: TypeAlias = Sequence[Entry]
Outcome: TypeAlias = LogSlice | Exception
_Encoded: TypeAlias = list[tuple[Entry, str]]


@attrs.define(eq=False)
class _Plan:
    """What a group of batches will add to a file, found out before anything is written."""

    key: ChatKey
    file: FileIO
    state: State
    data: bytearray = attrs.field(factory=bytearray)
    marks: list[Mark] = attrs.field(factory=list[Mark])
    fresh: dict[str, Entry] = attrs.field(factory=dict[str, Entry])

    def __attrs_post_init__(self) -> None:
        if self.state.end == 0:
            self.data += header_line(Header(self.key))

    def add(self, batch: _Encoded) -> LogSlice:
        """Add a batch, and return what will then be stored under its ids.

        Raises:
            StorageConflictError: an id is known with another payload; nothing is added.
        """
        known = [self._known(entry) for entry, _ in batch]
        first = self.state.last + len(self.marks) + 1
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
        position = self.state.last + len(self.marks) + 1
        start = self.state.end + len(self.data)
        line = entry_line(text, position, first, count)
        is_note = isinstance(entry, Note)
        mark = Mark(position, first, count, entry.id, is_note, start, start + len(line) - 1)
        placed = entry.placed(position, self.key.agent_id)
        self.data += line
        self.marks.append(mark)
        self.fresh[entry.id] = placed
        return placed


@attrs.frozen
class Appender:
    """Appends batches to chats' files.

    Args:
        cache: what is known of the files.
        lock: how chats are locked.
        durability: what "stored" means.
    """

    cache: StateCache
    lock: ChatLock
    durability: Durability

    def append(self, paths: ChatPaths, key: ChatKey, batches: Sequence[Batch]) -> list[Outcome]:
        """Append every batch of one chat, and return each one's own outcome."""
        encoded = [_encoded(batch) for batch in batches]
        good = [batch for batch in encoded if not isinstance(batch, Exception)]
        outcomes = iter(self._append(paths, key, good) if good else ())
        return [batch if isinstance(batch, Exception) else next(outcomes) for batch in encoded]

    def _append(self, paths: ChatPaths, key: ChatKey, batches: list[_Encoded]) -> list[Outcome]:
        try:
            with self.lock.hold(paths, key) as file:
                return self._append_locked(file, paths, key, batches)
        except OSError as error:
            return [unavailable(error, key, "saving to the chat") for _ in batches]
        except AgentMemoryError as error:
            return [error for _ in batches]

    def _append_locked(
        self, file: FileIO, paths: ChatPaths, key: ChatKey, batches: list[_Encoded]
    ) -> list[Outcome]:
        state = self.cache.take(paths.log, os.fstat(file.fileno()))
        state = load_state(file, paths, key) if state is None else state
        plan = _Plan(key, file, state)
        outcomes = [_outcome(plan, batch) for batch in batches]
        try:
            self._write(file, paths, plan)
        finally:
            if state.end == 0:  # nothing was written to a new file
                with suppress(OSError):
                    os.unlink(paths.log)  # noqa: PTH108 - a string
        if state.end:
            self.cache.put(paths.log, os.fstat(file.fileno()), state)
        return outcomes

    def _write(self, file: FileIO, paths: ChatPaths, plan: _Plan) -> None:
        state = plan.state
        if plan.marks:
            append_bytes(file, state.end, plan.data, self.durability)
            state.grow(plan.marks, len(plan.data))
        elif not state.settled:
            # All were known. Whoever wrote them may have crashed before the disk had them.
            sync_file(file.fileno(), self.durability)
        if not state.settled:
            self._sync_names(paths)
            state.settled = True

    def _sync_names(self, paths: ChatPaths) -> None:
        """Bring the names of a file that another may have made to the disk."""
        try:
            for directory in paths.directories:
                sync_directory(directory, self.durability)
        except OSError as error:
            raise UncertainError(*error.args) from error


def _encoded(batch: Batch) -> _Encoded | Exception:
    try:
        return [(entry, encode_entry(entry)) for entry in batch]
    except Exception as error:  # noqa: BLE001 - a batch that cannot be encoded fails alone
        return error


def _outcome(plan: _Plan, batch: _Encoded) -> Outcome:
    try:
        return plan.add(batch)
    except Exception as error:  # noqa: BLE001 - a batch in conflict fails alone
        return error
