"""From a log's items to the positions and entries they hold."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note
from agent_memory.storage.codec import decode_entry
from agent_memory.storage.dynamodb.log_end import Tail
from agent_memory.storage.dynamodb.table_layout import Kind, LogItem


@attrs.frozen
class Span:
    """The positions that a read asks for, from `low` to `high`; empty if `low` is above."""

    low: int
    high: int

    @property
    def count(self) -> int:
        """How many positions."""
        return max(0, self.high - self.low + 1)


def wanted(tail: Tail, after: int, first: int | None, last: int | None) -> Span:
    """The span that the arguments of a read mean in a log with this end."""
    low, high = max(tail.floor, after) + 1, tail.last
    if first is not None:
        high = min(high, low + first - 1)
    if last is not None:
        low = max(low, high - last + 1)
    return Span(low, high)


def chain(items: Iterable[LogItem], tail: Tail) -> list[LogItem]:
    """The items that hold the log's entries, in order.

    An item that reaches into the one after it is no part of the log: a writer that slept for
    very long put it at a place that had been given up, and takes it away again.
    """
    found: list[LogItem] = []
    upto = tail.last + 1
    for item in sorted(items, key=lambda item: item.place, reverse=True):
        if item.kind is Kind.APPEND and item.end < upto:
            found.append(item)
            upto = item.place.position
    found.reverse()
    return found


def overlapping(items: Iterable[LogItem], span: Span) -> list[LogItem]:
    """Those of the items that hold a position of the span."""
    return [
        item
        for item in items
        if item.place.position + item.skip <= span.high and item.end >= span.low
    ]


def holes(items: Sequence[LogItem], span: Span) -> list[int]:
    """The positions of the span that no item holds."""
    missing: list[int] = []
    expected = span.low
    for item in items:
        start = item.place.position + item.skip
        missing.extend(range(expected, min(start, span.high + 1)))
        expected = max(expected, item.end + 1)
    missing.extend(range(expected, span.high + 1))
    return missing


logger: Final = logging.getLogger(__name__)


@attrs.frozen
class RawSlice:
    """A part of a log before its entries are decoded, which is left to the caller's thread.

    Args:
        key: which chat.
        table: the table's name, for errors.
        floor: the chat's floor.
        span: which positions it holds.
        held: the items that hold them, with the text of their bodies.
    """

    key: ChatKey
    table: str
    floor: int = 0
    span: Span = attrs.field(default=Span(1, 0))
    held: Sequence[tuple[LogItem, str]] = ()

    def decode(self) -> LogSlice:
        """Decode the entries; a note of kind ``"corrupted"`` stands for each that is missing."""
        texts = dict(self._texts())
        positions = range(self.span.low, self.span.high + 1)
        return LogSlice([self._entry(at, texts.get(at)) for at in positions], self.floor)

    def _texts(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        for item, body in self.held:
            lines = body.split("\n")
            if len(lines) == item.count - item.skip:
                found.extend(enumerate(lines, item.place.position + item.skip))
        return found

    def _entry(self, position: int, text: str | None) -> Entry:
        location = f"DynamoDB table {self.table!r}, {self.key}, position {position}"
        try:
            # Nothing where an entry should be is no readable text either.
            return decode_entry(text or "", position, self.key.agent_id, location=location)
        except CorruptedRecordError as error:
            logger.warning("a message cannot be read and is left out: %s", location)
            note = Note(
                "corrupted",
                {"location": location, "error": str(error)},
                id=f"corrupted-{position}",
            )
            return note.placed(position, self.key.agent_id)
