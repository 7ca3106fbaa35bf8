"""The end of a log: all that a writer must know of a chat, and what it may write next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.storage.dynamodb.table_layout import (
    DIGEST_BYTES,
    Kind,
    LogItem,
    SortKey,
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

_MOST_KNOWN: Final = 4096  # log ends of about 500 bytes; the next append to another reads it


@attrs.frozen
class LogEnd:
    """What is known of a log's end.

    Args:
        newest: the place of the newest item.
        following: the place of the next item.
        last: the position of the newest entry.
        floor: everything up to it is gone.
        ids: hashes of the newest ids, oldest first; the last one is that of `last`.
        written_ms, created_ms, expires_at, oldest_expires_at, reserved: as in :class:`LogItem`.
        as_of_ms: when this was known to be true, in milliseconds since 1970; 0 if never.
    """

    newest: SortKey = attrs.field(default=SortKey(0))
    following: SortKey = attrs.field(default=SortKey(1))
    last: int = 0
    floor: int = 0
    ids: bytes = b""
    written_ms: int = 0
    created_ms: int = 0
    expires_at: int | None = 0
    oldest_expires_at: int | None = None
    reserved: int = 0
    as_of_ms: int = 0

    @classmethod
    def after(cls, item: LogItem, as_of_ms: int) -> LogEnd:
        """The end of a log whose last item this is.

        Raises:
            CorruptedRecordError: the item is broken, so that nothing is known.
        """
        if item.kind is Kind.UNREADABLE:
            raise CorruptedRecordError(
                f"the newest item of a log, at position {item.sort_key.position}, is unreadable; "
                "repair or remove it",
                location=f"position {item.sort_key.position}, slot {item.sort_key.slot}",
            )
        anchor = item.kind is Kind.ANCHOR
        return cls(
            newest=item.sort_key,
            following=item.following,
            last=item.reserved if anchor else item.last,
            floor=item.reserved if anchor else item.floor,
            ids=item.ids,
            written_ms=item.written_ms,
            created_ms=item.created_ms,
            expires_at=item.expires_at,
            oldest_expires_at=item.oldest_expires_at,
            reserved=item.reserved,
            as_of_ms=as_of_ms,
        )

    @property
    def unknown(self) -> bool:
        """Whether the table holds nothing of the chat."""
        return self.written_ms == 0

    def fresh(self, now: int) -> bool:
        """Whether a writer may still rely on it; a clock that went back makes it stale."""
        return self.as_of_ms <= now <= self.as_of_ms + TRUST_MS

    def wholly_expired(self, now: int) -> bool:
        """Whether the newest item has expired, and with it everything."""
        return not self.unknown and self.expires_at is not None and self.expires_at * 1000 <= now

    def partly_expired(self, now: int) -> bool:
        """Whether the oldest living item may have expired."""
        return self.oldest_expires_at is not None and self.oldest_expires_at * 1000 <= now

    def has_expiries(self, now: int) -> bool:
        """Whether anything that it knows may have expired."""
        return self.wholly_expired(now) or self.partly_expired(now)

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


def expired(end: LogEnd, reserved: int) -> LogEnd:
    """The end of a log of which nothing lives: it goes on above all that was ever used."""
    last = max(end.last, reserved)
    return attrs.evolve(
        end,
        following=SortKey(last + 1),
        last=last,
        floor=last,
        ids=b"",
        oldest_expires_at=None,
        created_ms=0,
    )


def next_append(end: LogEnd, now: int, ttl: int | None, ids: Iterable[str], notes: int) -> LogItem:
    """The item, without its body, that appends entries with these ids.

    Args:
        end: the log's end.
        now: the time in milliseconds since 1970.
        ttl: how many seconds entries live; None for ever.
        ids: of the entries.
        notes: how many of them are notes.
    """
    added = digests(list(ids))
    written_ms = max(now, end.written_ms)
    expires_at = _expiry(end, written_ms, ttl)
    return LogItem(
        sort_key=end.following,
        kind=Kind.APPEND,
        count=len(added) // DIGEST_BYTES,
        notes=notes,
        floor=end.floor,
        ids=newest_ids(end.ids, added),
        written_ms=written_ms,
        created_ms=end.created_ms or written_ms,
        expires_at=expires_at,
        oldest_expires_at=end.oldest_expires_at if end.last > end.floor else expires_at,
        reserved=end.reserved,
    )


def next_floor(end: LogEnd, now: int, ttl: int | None, floor: int) -> LogItem:
    """The item that says: everything up to `floor` is gone."""
    written_ms = max(now, end.written_ms)
    return LogItem(
        sort_key=end.following,
        kind=Kind.FLOOR,
        floor=floor,
        ids=end.ids,
        written_ms=written_ms,
        created_ms=end.created_ms,
        expires_at=_expiry(end, written_ms, ttl),
        oldest_expires_at=end.oldest_expires_at if end.last > floor else None,
        reserved=end.reserved,
    )


def _expiry(end: LogEnd, written_ms: int, ttl: int | None) -> int | None:
    """No item expires before an older one; once one never does, no later one does either."""
    if ttl is None or end.expires_at is None:
        return None
    return max(end.expires_at, written_ms // 1000 + ttl)


def reserve_for(last: int) -> int:
    """How many positions an anchor reserves for a log that has reached `last`."""
    return max(_FIRST_RESERVE, 2 * last)


def from_milliseconds(milliseconds: int) -> datetime:
    """A time in milliseconds since 1970 as a datetime."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def tombstone(item: LogItem) -> LogItem:
    """What stays of an item whose entries are gone."""
    return LogItem(
        sort_key=item.sort_key,
        kind=Kind.TOMBSTONE,
        count=item.count,
        written_ms=item.written_ms,
        expires_at=item.expires_at,
        token=item.token,
    )


class KnownEnds:
    """The log ends that a store knows, of the chats it wrote to most recently.

    One is taken out while it is used, and put back once the table is known to agree: whatever
    ends the work in between, the next writer reads the log's end.
    """

    def __init__(self) -> None:
        self._ends: OrderedDict[ChatKey, LogEnd] = OrderedDict()

    def take(self, key: ChatKey, now: int) -> LogEnd | None:
        """Take a chat's end out; None if it is not known, or not fresh."""
        end = self._ends.pop(key, None)
        return end if end is not None and end.fresh(now) else None

    def put(self, key: ChatKey, end: LogEnd) -> None:
        """Remember a chat's end."""
        self._ends[key] = end
        if len(self._ends) > _MOST_KNOWN:
            self._ends.popitem(last=False)
