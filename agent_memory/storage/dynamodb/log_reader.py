"""Reading: the end of a log, a part of it, all logs of a session; and listing chats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from agent_memory.log import LogSlice
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage._engine.handoff import decode
from agent_memory.storage.dynamodb.log_end import LogEnd, expired
from agent_memory.storage.dynamodb.ranges import (
    RawSlice,
    live_items,
    overlapping,
    requested_range,
)
from agent_memory.storage.dynamodb.table_client import QueryPages, TableClient
from agent_memory.storage.dynamodb.table_layout import (
    END,
    HEADER,
    LOG,
    Kind,
    LogItem,
    SortKey,
    from_attributes,
    last_sort_key_at,
    log_key,
    part_prefix,
    prefix,
    session_prefix,
    split_sort_key,
    unpack,
)

_OVERLAP: Final = 3
"""How many positions before the first requested one a query begins.

The item that holds the position often begins there, and the log's newest item is read even if
nothing follows: both would take another query otherwise.
"""

_PAGE: Final = 1000  # items; DynamoDB ends a page at 1 MB in any case
_LISTED: Final = 8  # items; more would read much of a long chat for nothing


@attrs.frozen
class LogReader:
    """Reads logs.

    Entries above the floor never change. So if all entries from a floor to an end were found, in
    whatever order, they are the log at the moment when that floor and end were read. If some are
    missing, a trim has removed them in between, and the floor is read again.

    Args:
        table: sends the requests.
        now: returns the time in milliseconds since 1970.
    """

    table: TableClient
    now: Callable[[], int]

    # ------------------------------------------------------------------------- the log's end

    async def end(self, key: ChatKey) -> LogEnd:
        """Return the log's end; its `unknown` is true if the table holds nothing of the chat."""
        as_of_ms = self.now()
        pages = self._pages(key, SortKey(0), forward=False, limit=1, only=HEADER)
        return await self.end_of(key, await _parsed(pages), as_of_ms)

    async def end_of(self, key: ChatKey, items: Sequence[LogItem], as_of_ms: int) -> LogEnd:
        """Return the end of a log, with the floor that expiry has raised by now.

        Args:
            key: which chat.
            items: the last one is the log's newest; none if the table holds nothing of the chat.
            as_of_ms: when they were read.
        """
        end = LogEnd.after(items[-1], as_of_ms) if items else LogEnd(as_of_ms=as_of_ms)
        if end.newest == SortKey(0):  # nothing, or the anchor alone
            return end
        if end.wholly_expired(as_of_ms):
            anchor = await self.table.get(log_key(key, SortKey(0)), key)
            return expired(end, 0 if anchor is None else from_attributes(anchor).reserved)
        if end.partly_expired(as_of_ms):
            return await self._above_expired(key, end)
        return end

    async def _above_expired(self, key: ChatKey, end: LogEnd) -> LogEnd:
        pages, found = await self._from(key, end.floor, limit=_PAGE, only=HEADER)
        while True:
            for item in found:
                alive = item.expires_at is None or item.expires_at * 1000 > end.as_of_ms
                if item.kind is Kind.APPEND and item.last > end.floor and alive:
                    floor = max(end.floor, item.positions.start - 1)
                    return attrs.evolve(end, floor=floor, oldest_expires_at=item.expires_at)
            if pages.done:  # only items without entries are left
                return attrs.evolve(end, floor=end.last, oldest_expires_at=None)
            found = await _parsed(pages)

    # ---------------------------------------------------------------------------- its entries

    async def read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        """Read a part of a log; the arguments are those of ``ChatStorage._read``."""
        found = await self._read(key, after, first, last)
        return await decode(found.decode, len(found.requested))

    async def _read(
        self, key: ChatKey, after: int = 0, first: int | None = None, last: int | None = None
    ) -> RawSlice:
        start, before = after, None
        while True:
            items, end = await self._window(key, start, first, last)
            found = await self._slice(key, items, end, requested_range(end, after, first, last))
            missing = found.missing
            if not missing or (end.floor, missing) == before:  # twice the same: it is damage
                return found
            start, before = max(start, end.floor), (end.floor, missing)

    async def read_session(self, user_id: str, session_id: str) -> dict[ChatKey, LogSlice]:
        """Read all logs of a session in one query; those that changed during it once more."""
        low = session_prefix(LOG, session_id)
        as_of_ms = self.now()
        chats: dict[ChatKey, list[LogItem]] = {}
        for attributes in await self.table.query(user_id, low, low + END).all():
            key, _ = split_sort_key(user_id, attributes["sk"]["B"])
            chats.setdefault(key, []).append(from_attributes(attributes))
        slices = [await self._whole(key, items, as_of_ms) for key, items in chats.items()]
        living = [found for found in slices if found.requested]
        count = sum(len(found.requested) for found in living)
        return await decode(lambda: {found.key: found.decode() for found in living}, count)

    async def _whole(self, key: ChatKey, items: list[LogItem], as_of_ms: int) -> RawSlice:
        end = await self.end_of(key, items, as_of_ms)
        found = await self._slice(key, items, end, requested_range(end, 0, None, None))
        return found if not found.missing else await self._read(key)

    async def messages(self, key: ChatKey, floor: int) -> tuple[list[int], LogEnd]:
        """Return the positions of the living messages, and the log's end.

        Bodies are read only where there are notes among the entries.

        Args:
            key: which chat.
            floor: one that the chat has had: reading begins there.
        """
        items, end = await self._window(key, floor, None, None, only=HEADER)
        positions: list[int] = []
        for item in overlapping(live_items(items, end), requested_range(end, 0, None, None)):
            positions.extend(await self._messages_of(key, item, end))
        return [position for position in positions if position > end.floor], end

    async def _messages_of(self, key: ChatKey, item: LogItem, end: LogEnd) -> Sequence[int]:
        if not item.notes:
            return item.positions
        whole = await self.item(key, item.sort_key)
        found = await self._slice(key, [] if whole is None else [whole], end, item.positions)
        return [
            position
            for position, entry in zip(item.positions, found.decode().entries, strict=True)
            if isinstance(entry, ConversationMessage)
        ]

    async def item(self, key: ChatKey, sort_key: SortKey) -> LogItem | None:
        """Return one item with its body, if it is inline."""
        attributes = await self.table.get(log_key(key, sort_key), key)
        return None if attributes is None else from_attributes(attributes)

    async def oldest(self, key: ChatKey) -> LogItem | None:
        """Return a log's first item behind the anchor, without its body."""
        return next(iter(await _parsed(self._pages(key, SortKey(1), limit=1, only=HEADER))), None)

    async def body(self, key: ChatKey, item: LogItem) -> str | None:
        """Return the text of an item's body; None if it is damaged or removed."""
        if item.text is not None:
            return item.text
        zipped = item.zipped
        if item.parts:
            low = part_prefix(key, item)
            parts = await self.table.query(key.user_id, low, low + END, key=key).all()
            zipped = b"".join(part["zip"]["B"] for part in parts)
        try:
            return None if zipped is None else unpack(zipped)
        except ValueError:
            return None

    async def _slice(
        self, key: ChatKey, items: Sequence[LogItem], end: LogEnd, requested: range
    ) -> RawSlice:
        chosen = overlapping(live_items(items, end), requested)
        bodies = [(item, await self.body(key, item)) for item in chosen]
        held = [(item, body) for item, body in bodies if body is not None]
        return RawSlice(key, self.table.name, end.floor, requested, held)

    # --------------------------------------------------------------------- users and chats

    async def users(self) -> list[str]:
        """Return all user ids, sorted; this reads the whole table."""
        pages = self.table.scan(only=("pk",))
        users: set[str] = set()
        while not pages.done:
            users.update(item["pk"]["S"] for item in await pages.next())
        return sorted(users)

    async def chats_after(
        self, user_id: str, session_id: str | None, previous: ChatKey | None
    ) -> tuple[list[tuple[ChatKey, LogEnd]], ChatKey | None]:
        """Return the ends of the next few logs, living or not.

        One query covers several short chats. Of a long one it reads only the beginning, and its
        end takes another query.

        Returns:
            The chats with their logs' ends, and the one to continue after; None at the end.
        """
        as_of_ms = self.now()
        stem = LOG if session_id is None else session_prefix(LOG, session_id)
        low = stem if previous is None else prefix(LOG, previous) + END
        pages = self.table.query(user_id, low, stem + END, limit=_LISTED, only=HEADER)
        chats: dict[ChatKey, list[LogItem]] = {}
        for item in await pages.next():
            key, _ = split_sort_key(user_id, item["sk"]["B"])
            chats.setdefault(key, []).append(from_attributes(item))
        last = None if pages.done else next(reversed(chats), None)
        ends = [
            (key, await (self.end(key) if key == last else self.end_of(key, items, as_of_ms)))
            for key, items in chats.items()
        ]
        return ends, last

    # ---------------------------------------------------------------- which items are read

    async def _window(
        self,
        key: ChatKey,
        after: int,
        first: int | None,
        last: int | None,
        *,
        only: Sequence[str] = (),
    ) -> tuple[list[LogItem], LogEnd]:
        as_of_ms = self.now()
        if last is not None:
            return await self._newest_window(key, after, last, as_of_ms)
        pages, items = await self._from(key, after, limit=first, only=only)
        high = None if first is None else after + first
        while not pages.done and (high is None or not _reach(items, high)):
            items += await _parsed(pages)
        if not pages.done:
            return items, await self.end(key)
        return items, await self.end_of(key, items, as_of_ms)

    async def _newest_window(
        self, key: ChatKey, after: int, last: int, as_of_ms: int
    ) -> tuple[list[LogItem], LogEnd]:
        pages = self._pages(key, SortKey(0), forward=False, limit=min(last, _PAGE))
        items = await _parsed(pages)
        if not items:
            return items, LogEnd(as_of_ms=as_of_ms)
        end = await self.end_of(key, items[:1], as_of_ms)
        low = requested_range(end, after, None, last).start
        while not pages.done and items[-1].sort_key.position > low:
            items += await _parsed(pages)
        return items, end

    async def _from(
        self, key: ChatKey, after: int, *, limit: int | None = None, only: Sequence[str] = ()
    ) -> tuple[QueryPages, list[LogItem]]:
        """Begin to read what follows a position, from the item that holds the first entry."""
        start = SortKey(max(0, after - _OVERLAP))
        limit = None if limit is None else limit + _OVERLAP
        pages = self._pages(key, start, limit=limit, only=only)
        items = await _parsed(pages)
        begins = items[0].sort_key.position if items else after + 2
        if start.position > 0 and begins > after + 1:
            before = last_sort_key_at(start.position - 1)
            earlier = self._pages(key, SortKey(0), before, forward=False, limit=1, only=only)
            items = await _parsed(earlier) + items
        return pages, items

    def _pages(
        self,
        key: ChatKey,
        low: SortKey,
        high: SortKey | None = None,
        *,
        forward: bool = True,
        limit: int | None = None,
        only: Sequence[str] = (),
    ) -> QueryPages:
        stem = prefix(LOG, key)
        upper = END if high is None else high.to_bytes()
        return self.table.query(
            key.user_id,
            stem + low.to_bytes(),
            stem + upper,
            key=key,
            forward=forward,
            limit=limit,
            only=only,
        )


def _reach(items: Sequence[LogItem], high: int) -> bool:
    return any(item.kind is Kind.APPEND and item.last >= high for item in reversed(items))


async def _parsed(pages: QueryPages) -> list[LogItem]:
    return [from_attributes(item) for item in await pages.next()]
