"""Which item of a log holds which living position. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from agent_memory.storage.dynamodb.items import Kind, LogItem
from agent_memory.storage.dynamodb.tails import Tail


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
