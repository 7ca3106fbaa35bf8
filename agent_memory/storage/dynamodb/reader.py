"""Reading a log: its end, a part of it, all logs of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.storage.dynamodb.log_end import Tail, expired
from agent_memory.storage.dynamodb.ranges import RawSlice, Span, chain, holes, overlapping, wanted
from agent_memory.storage.dynamodb.table_client import Calls, Pages
from agent_memory.storage.dynamodb.table_layout import (
    END,
    HEADER,
    LOG,
    Kind,
    LogItem,
    Place,
    from_attributes,
    last_place_at,
    log_key,
    part_prefix,
    prefix,
    session_prefix,
    split_sort_key,
    unpack,
)

_OVERLAP: Final = 3
"""A read of what follows a position begins so far before it: the batch that holds the position
begins there as a rule, and the end of the log is seen even when nothing follows."""

_PAGE: Final = 1000


@attrs.frozen
class LogReader:
    """Reads logs, consistently.

    Items never change but for what a floor has put out of sight. So whatever order they were
    read in, the entries from a floor to an end that were all found are the log as it was when
    that floor and end were read. What is missing went meanwhile, so the floor is read again.

    Args:
        calls: requests to the table.
        now: returns the time in milliseconds since 1970.
    """

    calls: Calls
    now: Callable[[], int]

    # ------------------------------------------------------------------------- the log's end

    async def tail(self, key: ChatKey) -> Tail:
        """Return the log's end; one that is ``unknown`` if the table has nothing of it."""
        seen = self.now()
        pages = self._pages(key, Place(0), forward=False, limit=1, only=HEADER)
        return await self.tail_of(key, await _first(pages), seen)

    async def tail_of(self, key: ChatKey, items: Sequence[LogItem], seen: int) -> Tail:
        """Return the end of a log, floor and all, as time has made it.

        Args:
            key: which chat.
            items: the last of them is the log's newest; none if the log is unknown.
            seen: when they were read.
        """
        tail = Tail.after(items[-1], seen) if items else Tail(seen=seen)
        if tail.wholly_expired(seen):
            anchor = await self.calls.get(log_key(key, Place(0)), key)
            return expired(tail, 0 if anchor is None else from_attributes(anchor).reserved)
        if tail.partly_expired(seen):
            return await self._above_expired(key, tail)
        return tail

    async def _above_expired(self, key: ChatKey, tail: Tail) -> Tail:
        pages, found = await self._from(key, tail.floor, limit=_PAGE, only=HEADER)
        while True:
            for item in found:
                alive = item.until is None or item.until * 1000 > tail.seen
                if item.kind is Kind.APPEND and item.end > tail.floor and alive:
                    floor = max(tail.floor, item.place.position + item.skip - 1)
                    return attrs.evolve(tail, floor=floor, due=item.until)
            if pages.done:  # only items without entries are left
                return attrs.evolve(tail, floor=tail.last, due=None)
            found = await _parsed(pages)

    # ---------------------------------------------------------------------------- its entries

    async def read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> RawSlice:
        """Read a part of a log; the arguments are those of ``ChatStorage._read``."""
        start, before = after, None
        while True:
            items, tail = await self._window(key, start, first, last)
            span = wanted(tail, after, first, last)
            held = await self._with_bodies(key, overlapping(chain(items, tail), span))
            missing = holes([item for item, _ in held], span)
            if not missing or (tail.floor, missing) == before:  # missing for good: corrupted
                return RawSlice(key, self.calls.table, tail.floor, span, held)
            start, before = max(start, tail.floor), (tail.floor, missing)

    async def read_session(self, user_id: str, session_id: str) -> dict[ChatKey, RawSlice]:
        """Read all logs of a session in one query, and again those that changed meanwhile."""
        low = session_prefix(LOG, session_id)
        seen = self.now()
        chats: dict[ChatKey, list[LogItem]] = {}
        for attributes in await self.calls.query(user_id, low, low + END).all():
            key, _ = split_sort_key(user_id, attributes["sk"]["B"])
            chats.setdefault(key, []).append(from_attributes(attributes))
        slices = [await self._whole(key, items, seen) for key, items in chats.items()]
        return {found.key: found for found in slices if found.span.count}

    async def _whole(self, key: ChatKey, items: list[LogItem], seen: int) -> RawSlice:
        tail = await self.tail_of(key, items, seen)
        span = wanted(tail, 0, None, None)
        held = await self._with_bodies(key, overlapping(chain(items, tail), span))
        if holes([item for item, _ in held], span):
            return await self.read(key)
        return RawSlice(key, self.calls.table, tail.floor, span, held)

    async def headers(self, key: ChatKey, floor: int) -> tuple[list[LogItem], Tail]:
        """Return the items, without their bodies, that hold what lives in a log, and its end.

        Args:
            key: which chat.
            floor: a floor that it has had, to begin to read there.
        """
        items, tail = await self._window(key, floor, None, None, only=HEADER)
        return overlapping(chain(items, tail), Span(tail.floor + 1, tail.last)), tail

    async def item(self, key: ChatKey, place: Place) -> LogItem | None:
        """Return one item with its body, if it is inline."""
        attributes = await self.calls.get(log_key(key, place), key)
        return None if attributes is None else from_attributes(attributes)

    async def body(self, key: ChatKey, item: LogItem) -> str | None:
        """Return the text of an item's body, or None if it is damaged or gone."""
        if item.text is not None:
            return item.text
        zipped = item.zipped
        if item.parts:
            low = part_prefix(key, item.place, item.token)
            parts = await self.calls.query(key.user_id, low, low + END, key=key).all()
            zipped = b"".join(part["zip"]["B"] for part in parts)
        try:
            return None if zipped is None else unpack(zipped)
        except ValueError:
            return None

    async def _with_bodies(
        self, key: ChatKey, items: Sequence[LogItem]
    ) -> list[tuple[LogItem, str]]:
        bodies = [(item, await self.body(key, item)) for item in items]
        return [(item, body) for item, body in bodies if body is not None]

    # ---------------------------------------------------------------- which items are read

    async def _window(
        self,
        key: ChatKey,
        after: int,
        first: int | None,
        last: int | None,
        *,
        only: Sequence[str] = (),
    ) -> tuple[list[LogItem], Tail]:
        seen = self.now()
        if last is not None:
            return await self._newest_window(key, after, last, seen)
        pages, items = await self._from(key, after, limit=first, only=only)
        high = None if first is None else after + first
        while not pages.done and (high is None or not _reach(items, high)):
            items += await _parsed(pages)
        if not pages.done:
            return items, await self.tail(key)
        return items, await self.tail_of(key, items, seen)

    async def _newest_window(
        self, key: ChatKey, after: int, last: int, seen: int
    ) -> tuple[list[LogItem], Tail]:
        pages = self._pages(key, Place(0), forward=False, limit=min(last, _PAGE))
        items = await _first(pages)
        if not items:
            return items, Tail(seen=seen)
        tail = await self.tail_of(key, items[:1], seen)
        low = wanted(tail, after, None, last).low
        while not pages.done and items[-1].place.position > low:
            items += await _parsed(pages)
        return items, tail

    async def _from(
        self, key: ChatKey, after: int, *, limit: int | None = None, only: Sequence[str] = ()
    ) -> tuple[Pages, list[LogItem]]:
        """Begin to read what follows a position, with the item that holds the first of it."""
        start = Place(max(0, after - _OVERLAP))
        limit = None if limit is None else limit + _OVERLAP
        pages = self._pages(key, start, limit=limit, only=only)
        items = await _first(pages)
        begins = items[0].place.position if items else after + 2
        if start.position > 0 and begins > after + 1:
            before = last_place_at(start.position - 1)
            earlier = self._pages(key, Place(0), before, forward=False, limit=1, only=only)
            items = await _first(earlier) + items
        return pages, items

    def _pages(
        self,
        key: ChatKey,
        low: Place,
        high: Place | None = None,
        *,
        forward: bool = True,
        limit: int | None = None,
        only: Sequence[str] = (),
    ) -> Pages:
        stem = prefix(LOG, key)
        end = END if high is None else high.to_bytes()
        return self.calls.query(
            key.user_id,
            stem + low.to_bytes(),
            stem + end,
            key=key,
            forward=forward,
            limit=limit,
            only=only,
        )


def _reach(items: Sequence[LogItem], high: int) -> bool:
    return any(item.kind is Kind.APPEND and item.end >= high for item in reversed(items))


async def _parsed(pages: Pages) -> list[LogItem]:
    items: list[dict[str, Any]] = await pages.next()
    return [from_attributes(item) for item in items]


async def _first(pages: Pages) -> list[LogItem]:
    """Read pages until there is an item, or no page left."""
    items = await _parsed(pages)
    while not items and not pages.done:
        items = await _parsed(pages)
    return items
