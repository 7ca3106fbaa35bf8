"""Which positions the items of a log hold, and the entries at them. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import Entry, LogSlice, corrupted_note
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import decode_entry
from agent_memory.storage.dynamodb.log_end import LogEnd
from agent_memory.storage.dynamodb.table_layout import Kind, LogItem


def requested_range(end: LogEnd, after: int, first: int | None, last: int | None) -> range:
    """Return the positions that the arguments of a read stand for in a log with this end."""
    low, stop = max(end.floor, after) + 1, end.last + 1
    if first is not None:
        stop = min(stop, low + first)
    if last is not None:
        low = max(low, stop - last)
    return range(low, stop)


def live_items(items: Iterable[LogItem], end: LogEnd) -> list[LogItem]:
    """Return the items that hold the log's entries, in order.

    An item that reaches into the next one is no part of the log: a writer that was suspended
    for very long put it at a key that had become free, and is about to remove it.
    """
    found: list[LogItem] = []
    upto = end.last + 1
    for item in sorted(items, key=lambda item: item.sort_key, reverse=True):
        if item.kind is Kind.APPEND and item.last < upto:
            found.append(item)
            upto = item.sort_key.position
    found.reverse()
    return found


def overlapping(items: Iterable[LogItem], requested: range) -> list[LogItem]:
    """Return the items that hold a requested position."""
    return [
        item
        for item in items
        if item.positions.start < requested.stop and item.positions.stop > requested.start
    ]


def missing_positions(items: Iterable[LogItem], requested: range) -> list[int]:
    """Return the requested positions that no item holds."""
    missing: list[int] = []
    expected = requested.start
    for item in items:
        missing.extend(range(expected, min(item.positions.start, requested.stop)))
        expected = max(expected, item.positions.stop)
    missing.extend(range(expected, requested.stop))
    return missing


logger: Final = logging.getLogger(__name__)


@attrs.frozen
class RawSlice:
    """A part of a log whose entries are not decoded yet.

    Args:
        key: which chat.
        table: the table's name, for errors.
        floor: the chat's floor.
        requested: which positions it holds.
        held: the items that hold them, with the text of their bodies.
    """

    key: ChatKey
    table: str
    floor: int
    requested: range
    held: Sequence[tuple[LogItem, str]]

    @property
    def missing(self) -> list[int]:
        """The requested positions that no item holds."""
        return missing_positions((item for item, _ in self.held), self.requested)

    def decode(self) -> LogSlice:
        """Decode the entries, with a note of kind ``"corrupted"`` for each that is missing."""
        texts: dict[int, str] = {}
        for item, body in self.held:
            lines = body.split("\n")
            if len(lines) == len(item.positions):
                texts.update(zip(item.positions, lines, strict=True))
        return LogSlice([self._entry(at, texts.get(at)) for at in self.requested], self.floor)

    def _entry(self, position: int, text: str | None) -> Entry:
        location = f"DynamoDB table {self.table!r}, {self.key}, position {position}"
        try:
            # A missing entry is as unreadable as a damaged one: "" is no JSON.
            return decode_entry(text or "", position, self.key.agent_id, location=location)
        except CorruptedRecordError as error:
            logger.warning("a message cannot be read and is left out: %s", location)
            return corrupted_note(position, self.key.agent_id, location, str(error))
