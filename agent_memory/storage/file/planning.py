"""What a group of appends will add to a chat's file, found out before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from io import FileIO
from typing import TypeAlias

import attrs

from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, same_payload
from agent_memory.storage.codec import encode_entry
from agent_memory.storage.file.lines import Header, Mark, entry_line, header_line
from agent_memory.storage.file.state import State
from agent_memory.storage.requests import conflict

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
        marks: of the entries in them.
        fresh: these entries as they will be stored, by id.
    """

    key: ChatKey
    file: FileIO
    state: State
    data: bytearray = attrs.field(factory=bytearray, init=False)
    marks: list[Mark] = attrs.field(factory=list[Mark], init=False)
    fresh: dict[str, Entry] = attrs.field(factory=dict[str, Entry], init=False)

    def __attrs_post_init__(self) -> None:
        if self.state.end == 0:
            self.data += header_line(Header(self.key))

    def add(self, batch: Encoded) -> LogSlice:
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

    def outcome(self, batch: Encoded | Exception) -> Outcome:
        """Do the same, and return the error if the batch cannot be added."""
        if isinstance(batch, Exception):
            return batch
        size, count = len(self.data), len(self.marks)
        try:
            return self.add(batch)
        except Exception as error:  # noqa: BLE001 - a batch in conflict fails alone
            # Out of memory in the midst of it, say: no part of the batch may stay.
            del self.data[size:]
            for mark in self.marks[count:]:
                self.fresh.pop(mark.id, None)
            del self.marks[count:]
            return error
