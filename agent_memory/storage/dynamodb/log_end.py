"""The end of a log: what a writer knows of a chat, and the item it may put next. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import ChatInfo
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
"""For how many milliseconds a writer relies on a log's end without reading it again."""

ERASE_MS: Final = 60 * 60 * 1000
"""How many milliseconds old an item must be before its key may become free.

A writer that was suspended may put its item at a key that was the next one when it looked. If
that key had been taken and removed since, the put would succeed below the log's end. So a key
stays taken for longer than any writer relies on a log's end, with half an hour for clocks that
differ. Text is removed at once; a tombstone without content keeps the key.
"""

_FIRST_RESERVE: Final = 1024

_MOST_KNOWN: Final = 4096  # log ends of about 500 bytes; the next append to another reads it


@attrs.frozen
class LogEnd:
    """The end of a log, as it was read or written at some moment.

    Args:
        newest: the key of the newest item.
        following: the key of the next item.
        last: the position of the newest entry.
        floor: everything up to it is removed.
        ids: hashes of the newest ids, oldest first; the last one is that of `last`.
        written_ms, created_ms, expires_at, oldest_expires_at, reserved: as in :class:`LogItem`.
        as_of_ms: when that was, in milliseconds since 1970; 0 if never.
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
        """Return the end of a log that has this as its newest item.

        Raises:
            CorruptedRecordError: the item is unreadable.
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
            # An anchor stays, but what it stands for has expired: the chat has a limit.
            expires_at=0 if anchor else item.expires_at,
            oldest_expires_at=item.oldest_expires_at,
            reserved=item.reserved,
            as_of_ms=as_of_ms,
        )

    @property
    def unknown(self) -> bool:
        """Whether the table holds nothing of the chat."""
        return self.written_ms == 0

    @property
    def is_dead(self) -> bool:
        """Whether nothing lives in the chat."""
        return self.last == self.floor

    def info(self, key: ChatKey) -> ChatInfo:
        """Describe the chat."""
        times = _datetime(self.created_ms), _datetime(self.written_ms)
        return ChatInfo(key, self.floor, self.last, *times)

    def fresh(self, now: int) -> bool:
        """Whether a writer may still rely on it; not if the clock went back."""
        return self.as_of_ms <= now <= self.as_of_ms + TRUST_MS

    def wholly_expired(self, now: int) -> bool:
        """Whether the newest item has expired, and with it everything."""
        return not self.unknown and self.expires_at is not None and self.expires_at * 1000 <= now

    def partly_expired(self, now: int) -> bool:
        """Whether the oldest living item may have expired."""
        return self.oldest_expires_at is not None and self.oldest_expires_at * 1000 <= now

    def has_expiries(self, now: int) -> bool:
        """Whether anything in the log may have expired."""
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
    """Return the end of a log after all entries have expired: it goes on above their positions."""
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
    """Return the item, without its body, that appends entries with these ids.

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
    """Return the item of a trim or delete: everything up to `floor` is removed."""
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
    """Return when an item expires: not before an older one; never if an older one never does."""
    # Otherwise the oldest entries could outlive newer ones: expiry is a rising floor.
    if ttl is None or end.expires_at is None:
        return None
    return max(end.expires_at, written_ms // 1000 + ttl)


def reserve_for(last: int) -> int:
    """Return how many positions an anchor reserves for a log that has reached `last`."""
    return max(_FIRST_RESERVE, 2 * last)


def _datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def tombstone(item: LogItem) -> LogItem:
    """Return the tombstone of an item."""
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

    A writer takes one out, and puts the next one back when its write has succeeded. Whatever
    fails in between, the writer after it reads the log's end.
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
