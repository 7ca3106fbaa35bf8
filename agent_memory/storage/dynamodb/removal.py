"""Trimming, deleting and purging: a floor is appended, then what lies below it is removed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.dynamodb.lanes import Lane, Lanes
from agent_memory.storage.dynamodb.listing import Lister
from agent_memory.storage.dynamodb.log_end import ERASE_MS, Tail, next_floor, tombstone
from agent_memory.storage.dynamodb.ranges import RawSlice, Span
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.summary_records import Records
from agent_memory.storage.dynamodb.table_client import Calls
from agent_memory.storage.dynamodb.table_layout import (
    END,
    HEADER,
    LOG,
    PART,
    PLACE_BYTES,
    SUMMARY,
    TOKEN_BYTES,
    Kind,
    LogItem,
    Place,
    from_attributes,
    join_lines,
    last_place_at,
    log_key,
    prefix,
    split_sort_key,
)
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


_PART_KEYS: Final = ("pk", "sk", "at")


@attrs.frozen
class Purger:
    """Removes dead chats and stray parts.

    Args:
        calls: requests to the table.
        reader: reads the logs' ends.
        lister: finds the chats.
        lanes: what is known of the chats, to be forgotten with them.
    """

    calls: Calls
    reader: LogReader
    lister: Lister
    lanes: Lanes

    async def purge(self, age_ms: int) -> int:
        """Remove chats that have been dead for so many milliseconds; return how many."""
        purged = 0
        for user_id in await self.lister.users():
            key = await self.lister.key_after(user_id, None)
            while key is not None:
                purged += await self._purge_chat(key, age_ms)
                key = await self.lister.key_after(user_id, key)
            await self._purge_parts(user_id)
        return purged

    async def _purge_chat(self, key: ChatKey, age_ms: int) -> bool:
        lane = self.lanes.of(key)
        async with lane.lock:
            tail = await self.reader.tail(key)
            if tail.last > tail.floor or tail.at > self.reader.now() - age_ms:
                return False
            lane.tail = None
            for kind in (PART, SUMMARY):
                await self._delete(key, kind, ("pk", "sk"))
            await self._delete(key, LOG, HEADER)
            return True

    async def _delete(self, key: ChatKey, kind: bytes, only: tuple[str, ...]) -> None:
        stem = prefix(kind, key)
        items = await self.calls.query(key.user_id, stem, stem + END, key=key, only=only).all()
        # The newest item goes last: until then the floor is known, and a purge can go on.
        await self.calls.delete_all(items[:-1], key)
        await self.calls.delete_all(items[-1:], key)

    async def _purge_parts(self, user_id: str) -> None:
        """Remove parts that no item shows, once no append can be about to show them."""
        pages = self.calls.query(user_id, PART, PART + END, only=_PART_KEYS)
        before = self.reader.now() - ERASE_MS
        shown: dict[tuple[ChatKey, bytes], bytes] = {}
        while not pages.done:
            for part in await pages.next():
                key, rest = split_sort_key(user_id, part["sk"]["B"])
                place, token = rest[:PLACE_BYTES], rest[PLACE_BYTES:][:TOKEN_BYTES]
                if (key, place) not in shown:
                    shown = {(key, place): await self._token_at(key, Place.from_bytes(place))}
                if shown[key, place] != token and int(part["at"]["N"]) <= before:
                    await self.calls.delete_all([part], key)

    async def _token_at(self, key: ChatKey, place: Place) -> bytes:
        item = await self.calls.get(log_key(key, place), key)
        return b"" if item is None else bytes(item.get("token", {"B": b""})["B"])
