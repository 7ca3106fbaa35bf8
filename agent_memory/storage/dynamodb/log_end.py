"""The end of a log: all that a writer must know of a chat, and what it may write next."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.storage.dynamodb.table_layout import (
    DIGEST_BYTES,
    Kind,
    LogItem,
    Place,
    digests,
    newest_ids,
)

TRUST_MS: Final = 10 * 60 * 1000
"""How long a writer may rely on what it knows of a log's end, in milliseconds."""

ERASE_MS: Final = 60 * 60 * 1000
"""How old an item must be for its place to be given up.

A writer that fell asleep may try to write at a place that it believes to be free. So a place
stays taken for longer than any writer relies on what it knows, by enough to bear clocks that
differ by half an hour. Text is removed at once; what stays is a tombstone without content.
"""

_FIRST_RESERVE: Final = 1024


@attrs.frozen
class Tail:
    """What is known of a log's end.

    Args:
        newest: the place of the newest item.
        following: the place of the next item.
        last: the position of the newest entry.
        floor: everything up to it is gone.
        ids: hashes of the newest ids, oldest first; the last one is that of `last`.
        at, born, until, due, reserved: as in :class:`LogItem`.
        seen: when this was known to be true, in milliseconds since 1970; 0 if never.
    """

    newest: Place = attrs.field(default=Place(0))
    following: Place = attrs.field(default=Place(1))
    last: int = 0
    floor: int = 0
    ids: bytes = b""
    at: int = 0
    born: int = 0
    until: int | None = 0
    due: int | None = None
    reserved: int = 0
    seen: int = 0

    @classmethod
    def after(cls, item: LogItem, seen: int) -> Tail:
        """The end of a log whose last item this is.

        Raises:
            CorruptedRecordError: the item is broken, so that nothing is known.
        """
        if item.kind is Kind.BROKEN:
            raise CorruptedRecordError(
                f"the newest item of a log, at position {item.place.position}, is unreadable; "
                "repair or remove it",
                location=f"position {item.place.position}, slot {item.place.slot}",
            )
        anchor = item.kind is Kind.ANCHOR
        return cls(
            newest=item.place,
            following=item.following,
            last=item.reserved if anchor else item.end,
            floor=item.reserved if anchor else item.floor,
            ids=item.ids,
            at=item.at,
            born=item.born,
            until=item.until,
            due=item.due,
            reserved=item.reserved,
            seen=seen,
        )

    @property
    def unknown(self) -> bool:
        """Whether the table holds nothing of the chat."""
        return self.at == 0

    def fresh(self, now: int) -> bool:
        """Whether a writer may still rely on it; a clock that went back makes it stale."""
        return self.seen <= now <= self.seen + TRUST_MS

    def wholly_expired(self, now: int) -> bool:
        """Whether the newest item has expired, and with it everything."""
        return not self.unknown and self.until is not None and self.until * 1000 <= now

    def partly_expired(self, now: int) -> bool:
        """Whether the oldest living item may have expired."""
        return self.due is not None and self.due * 1000 <= now

    def matches(self, ids: Iterable[str]) -> list[int]:
        """The living positions where one of these ids may be, in ascending order."""
        count = len(self.ids) // DIGEST_BYTES
        wanted = {digests([one]) for one in ids}
        return [
            self.last - count + 1 + index
            for index in range(count)
            if self.last - count + 1 + index > self.floor
            and self.ids[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES] in wanted
        ]


def expired(tail: Tail, reserved: int) -> Tail:
    """The end of a log of which nothing lives: it goes on above all that was ever used."""
    last = max(tail.last, reserved)
    return attrs.evolve(
        tail, following=Place(last + 1), last=last, floor=last, ids=b"", due=None, born=0
    )


def next_append(tail: Tail, now: int, ttl: int | None, ids: Iterable[str], notes: int) -> LogItem:
    """The item, without its body, that appends entries with these ids.

    Args:
        tail: the log's end.
        now: the time in milliseconds since 1970.
        ttl: how many seconds entries live; None for ever.
        ids: of the entries.
        notes: how many of them are notes.
    """
    added = digests(list(ids))
    at = max(now, tail.at)
    until = _until(tail, at, ttl)
    return LogItem(
        place=tail.following,
        kind=Kind.APPEND,
        count=len(added) // DIGEST_BYTES,
        notes=notes,
        floor=tail.floor,
        ids=newest_ids(tail.ids, added),
        at=at,
        born=tail.born or at,
        until=until,
        due=tail.due if tail.last > tail.floor else until,
        reserved=tail.reserved,
    )


def next_floor(tail: Tail, now: int, ttl: int | None, floor: int) -> LogItem:
    """The item that says: everything up to `floor` is gone."""
    at = max(now, tail.at)
    return LogItem(
        place=tail.following,
        kind=Kind.FLOOR,
        floor=floor,
        ids=tail.ids,
        at=at,
        born=tail.born,
        until=_until(tail, at, ttl),
        due=tail.due if tail.last > floor else None,
        reserved=tail.reserved,
    )


def _until(tail: Tail, at: int, ttl: int | None) -> int | None:
    """No item expires before an older one; once one never does, no later one does either."""
    if ttl is None or tail.until is None:
        return None
    return max(tail.until, at // 1000 + ttl)


def reserve_for(last: int) -> int:
    """How many positions an anchor reserves for a log that has reached `last`."""
    return max(_FIRST_RESERVE, 2 * last)


def stamp(milliseconds: int) -> datetime:
    """A time in milliseconds since 1970 as a datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def tombstone(item: LogItem) -> LogItem:
    """What stays of an item whose entries are gone."""
    return LogItem(
        place=item.place,
        kind=Kind.GONE,
        count=item.count,
        at=item.at,
        until=item.until,
        token=item.token,
    )
