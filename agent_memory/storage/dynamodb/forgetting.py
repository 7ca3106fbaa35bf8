"""Trimming and deleting: a floor is appended, then what lies below it is removed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.dynamodb.bodies import join_lines
from agent_memory.storage.dynamodb.calls import Calls
from agent_memory.storage.dynamodb.cover import Span
from agent_memory.storage.dynamodb.entries import RawSlice
from agent_memory.storage.dynamodb.items import HEADER, Kind, LogItem, from_attributes
from agent_memory.storage.dynamodb.lanes import Lane
from agent_memory.storage.dynamodb.places import (
    LOG,
    TOKEN_BYTES,
    Place,
    last_place_at,
    log_key,
    prefix,
)
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.summaries import Records
from agent_memory.storage.dynamodb.tails import ERASE_MS, Tail, next_floor, tombstone
from agent_memory.storage.dynamodb.writer import LogWriter, lost_every_race, part_keys

logger: Final = logging.getLogger(__name__)

_LESS_CUT: Final = "#kind = :append AND (attribute_not_exists(#skip) OR #skip < :skip)"


@attrs.frozen
class Forgetter:
    """Raises floors.

    Args:
        calls: requests to the table.
        reader: reads the logs.
        writer: writes items.
        records: the summary records, void below a floor.
    """

    calls: Calls
    reader: LogReader
    writer: LogWriter
    records: Records

    async def forget(self, key: ChatKey, keep: int) -> int:
        """Let only the newest `keep` messages live; return how many went."""
        lane = self.writer.lanes.of(key)
        async with lane.lock:
            tail, gone = await self._raise_floor(key, lane, keep)
        if tail.floor:
            await asyncio.gather(
                self.records.remove_below(key, tail.floor), self._sweep(key, tail)
            )
        return gone

    async def _raise_floor(self, key: ChatKey, lane: Lane, keep: int) -> tuple[Tail, int]:
        """Return the log's end, and how many messages went below its floor just now."""
        backoff = Backoff(self.calls.timeout)
        while True:
            known = lane.tail if lane.tail and lane.tail.fresh(self.reader.now()) else Tail()
            items, tail = await self.reader.headers(key, known.floor)
            positions = await self._message_positions(key, items, tail)
            floor = _floor(tail, positions, keep)
            lane.tail = await self._put_floor(key, tail, floor) if floor > tail.floor else tail
            if lane.tail is not None:
                return lane.tail, sum(position <= floor for position in positions)
            if backoff.expired:
                raise lost_every_race(self.calls, key)
            await backoff.wait()

    async def _put_floor(self, key: ChatKey, tail: Tail, floor: int) -> Tail | None:
        item = attrs.evolve(
            next_floor(tail, self.reader.now(), self.writer.ttl, floor),
            token=os.urandom(TOKEN_BYTES),
        )
        if not await self.calls.put_new(self.writer.attributes(key, item), key):
            return None
        return await self.writer.reserve(key, Tail.after(item, tail.seen))

    async def _message_positions(
        self, key: ChatKey, items: Sequence[LogItem], tail: Tail
    ) -> list[int]:
        positions: list[int] = []
        for item in items:
            positions.extend(await self._messages_of(key, item))
        return [position for position in positions if position > tail.floor]

    async def _messages_of(self, key: ChatKey, item: LogItem) -> Sequence[int]:
        start = item.place.position + item.skip
        if not item.notes:
            return range(start, item.end + 1)
        whole = await self.reader.item(key, item.place)
        body = None if whole is None else await self.reader.body(key, whole)
        held = [] if body is None or whole is None else [(whole, body)]
        raw = RawSlice(key, self.calls.table, 0, Span(start, item.end), held)
        return [
            start + index
            for index, entry in enumerate(raw.decode().entries)
            if isinstance(entry, ConversationMessage)
        ]

    # ---------------------------------------------------------------------- below the floor

    async def _sweep(self, key: ChatKey, tail: Tail) -> None:
        """Remove what lies below the floor; after a crash the next trim or delete goes on."""
        stem = prefix(LOG, key)
        low, high = stem + Place(1).to_bytes(), stem + last_place_at(tail.floor + 1).to_bytes()
        pages = self.calls.query(key.user_id, low, high, key=key, only=HEADER)
        while not pages.done:
            items = [from_attributes(attributes) for attributes in await pages.next()]
            older = [item for item in items if item.place < tail.newest]
            await self._remove(key, [item for item in older if item.end <= tail.floor])
            for item in older:
                if item.kind is Kind.APPEND and item.end > tail.floor:
                    await self._cut(key, item, tail.floor)

    async def _remove(self, key: ChatKey, items: Sequence[LogItem]) -> None:
        """Remove items; the younger ones leave a tombstone, see ``ERASE_MS``."""
        for item in items:
            await self.calls.delete_all(part_keys(key, item), key)
        before = self.reader.now() - ERASE_MS
        old = [log_key(key, item.place) for item in items if item.at <= before]
        young = [
            self.writer.attributes(key, tombstone(item))
            for item in items
            if item.at > before and item.kind is Kind.APPEND
        ]
        await self.calls.put_all(young, key)
        await self.calls.delete_all(old, key)

    async def _cut(self, key: ChatKey, item: LogItem, floor: int) -> None:
        """Rewrite an item of which only the newer entries live."""
        skip = floor + 1 - item.place.position
        whole = await self.reader.item(key, item.place) if skip > item.skip else None
        if whole is None or whole.kind is not Kind.APPEND or skip <= whole.skip:
            return
        body = await self.reader.body(key, whole)
        if body is None:
            return
        lines = body.split("\n")[skip - whole.skip :]
        bare = attrs.evolve(whole, skip=skip, text=None, zipped=None, parts=0)
        if await self.writer.put_with_body(key, bare, join_lines(lines), _LESS_CUT):
            await self.calls.delete_all(part_keys(key, whole), key)


def _floor(tail: Tail, positions: Sequence[int], keep: int) -> int:
    if keep == 0:
        return tail.last
    return tail.floor if len(positions) < keep else positions[-keep] - 1
