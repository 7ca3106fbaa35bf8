"""Appending to logs: one conditional put for each group of saves."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Any, Final

import attrs

from agent_memory.errors import StorageError, StorageUnavailableError
from agent_memory.log import Entry, Note
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.append_plan import (
    AppendPlan,
    Outcome,
    PendingSave,
    append_plan,
)
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage._engine.commit_queue import Bounds
from agent_memory.storage.dynamodb.log_end import (
    ERASE_MS,
    KnownEnds,
    LogEnd,
    next_append,
    reserve_for,
    tombstone,
)
from agent_memory.storage.dynamodb.log_reader import LogReader
from agent_memory.storage.dynamodb.table_client import FREE, TableClient
from agent_memory.storage.dynamodb.table_layout import (
    ITEM_LIMIT,
    LAYOUT,
    MAX_ENTRIES,
    TOKEN_BYTES,
    Attributes,
    Body,
    Kind,
    LogItem,
    SortKey,
    join_lines,
    log_key,
    pack,
    part_keys,
    size_of,
    to_attributes,
)

logger: Final = logging.getLogger(__name__)

GROUP: Final = Bounds(saves=MAX_ENTRIES, entries=MAX_ENTRIES, characters=100_000)
"""Waiting saves share an item up to this size, so that none makes another one's item big."""

_LONGEST_RACE_PAUSE: Final = 0.05
_IN_THREAD: Final = 100_000  # characters from which compressing may hold up other chats


@attrs.frozen
class LogWriter:
    """Appends to logs. A group of saves is one item, put on the condition that its key is free.

    Losing the race for the key means reading the log's end and trying again at the next one.

    Args:
        table: sends the requests.
        reader: reads the logs.
        ends: the log ends that are known.
        ttl: how many seconds entries live; None for ever.
        ttl_attribute: the attribute by which DynamoDB knows when to remove an item.
    """

    table: TableClient
    reader: LogReader
    ends: KnownEnds
    ttl: int | None
    ttl_attribute: str

    async def commit(self, saves: list[PendingSave[str]]) -> Sequence[Outcome]:
        """Store the saves of one chat as one item; return the outcome of each."""
        key = saves[0].key
        backoff = Backoff(self.table.timeout, _LONGEST_RACE_PAUSE)
        while True:
            now = self.reader.now()
            end = known = self.ends.take(key, now)
            if end is None or end.has_expiries(now):
                end = await self.reader.end(key)
            plan = await self._plan(key, end, saves)
            after = None if plan is None else await self._put(key, end, plan)
            if plan is not None and after is not None:
                # Where all was known, an end that was only read may be that of a save in flight,
                # which takes its item back if the chat was purged.
                if plan.added or end is known:
                    self.ends.put(key, after)
                return plan.outcomes
            if backoff.expired:
                raise lost_every_race(self.table, key)
            await backoff.wait()

    async def _plan(
        self, key: ChatKey, end: LogEnd, saves: Sequence[PendingSave[str]]
    ) -> AppendPlan[str] | None:
        """Return what to append; None if the floor has risen since `end` was read."""
        known: dict[str, Entry] = {}
        if positions := end.matches(entry.id for save in saves for entry in save.entries):
            first, count = positions[0], positions[-1] - positions[0] + 1
            log = await self.reader.read(key, after=first - 1, first=count)
            if log.floor != end.floor:
                return None
            known = {entry.id: entry for entry in log.entries}
        return append_plan(key, end.last, end.floor, saves, lambda entry: known.get(entry.id))

    async def _put(self, key: ChatKey, end: LogEnd, plan: AppendPlan[str]) -> LogEnd | None:
        """Put one item and return the log's end after it; None if its key is taken."""
        if not plan.added:
            return end  # all of it was read from the table, so it is durable
        sent = self.reader.now()
        ids = [entry.id for entry, _ in plan.added]
        notes = sum(isinstance(entry, Note) for entry, _ in plan.added)
        item = next_append(end, sent, self.ttl, ids, notes)
        stored = await self.put_with_body(key, item, join_lines([text for _, text in plan.added]))
        if stored is None or await self._taken_back(key, end, stored):
            return None
        return await self.reserve(key, end, LogEnd.after(stored, sent))

    async def put_with_body(
        self,
        key: ChatKey,
        item: LogItem,
        text: str,
        condition: str = FREE,
        **values: Attributes,
    ) -> LogItem | None:
        """Put an item with its body and return it; None if the condition is not met.

        Parts are written before the item that shows them, so that no reader misses one.

        Args:
            key: which chat.
            item: the item, without token and body.
            text: its body.
            condition, values: as of :meth:`TableClient.put_if`.
        """
        item = attrs.evolve(item, token=os.urandom(TOKEN_BYTES))
        header = {**self.attributes(key, item), "parts": {"N": "1"}, "text": {"S": ""}}
        body = await _packed(text, ITEM_LIMIT - size_of(header))
        item = attrs.evolve(item, text=body.text, zipped=body.zipped, parts=len(body.parts))
        await self._put_parts(key, item, body)
        try:
            stored = await self.table.put_if(self.attributes(key, item), key, condition, **values)
        except StorageError as error:
            # If the item may be there, its parts must stay: without them it cannot be read.
            if error.stored is False:
                await self.drop_parts(key, item)
            raise
        if not stored:
            await self.drop_parts(key, item)
        return item if stored else None

    def attributes(self, key: ChatKey, item: LogItem) -> dict[str, Any]:
        """Return an item in the client's form, with its time for DynamoDB's TTL."""
        return {**to_attributes(key, item), **self._removal(item.expires_at)}

    def _removal(self, expires_at: int | None) -> dict[str, Any]:
        # An hour later than readers stop showing it: its key must stay taken for as long as a
        # writer may rely on an older end. DynamoDB itself removes it within days after that.
        # Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/howitworks-ttl.html
        if expires_at is None:
            return {}
        return {self.ttl_attribute: {"N": str(expires_at + ERASE_MS // 1000)}}

    async def _put_parts(self, key: ChatKey, item: LogItem, body: Body) -> None:
        common: Attributes = {
            "v": {"N": str(LAYOUT)},
            "at": {"N": str(item.written_ms)},
            **self._removal(item.expires_at),
        }
        keys = part_keys(key, item)
        parts = [
            {**primary, **common, "zip": {"B": part}}
            for primary, part in zip(keys, body.parts, strict=True)
        ]
        try:
            await self.table.put_all(parts, key)
        except StorageError as error:
            error.stored = False  # parts show only with their item
            await self.drop_parts(key, item)
            raise

    async def drop_parts(self, key: ChatKey, item: LogItem) -> None:
        """Remove the parts of an item that was not put; if that fails, `purge` removes them."""
        try:
            await self.table.delete_all(part_keys(key, item), key)
        except StorageError as error:
            logger.warning("parts of an append that failed are left for purge(): %s", error)

    async def _taken_back(self, key: ChatKey, end: LogEnd, item: LogItem) -> bool:
        """Take the item back if the log did not end there any more; return whether it was."""
        try:
            if await self._is_below_floor(key, end, item):
                await self.table.put_all([self.attributes(key, tombstone(item))], key)
            elif await self._was_purged(key, end, item):
                await self.table.delete_all([log_key(key, item.sort_key)], key)
            else:
                return False
        except StorageError as error:
            error.stored = None  # the item was put; whether it shows is unknown
            raise
        await self.drop_parts(key, item)
        return True

    async def _is_below_floor(self, key: ChatKey, end: LogEnd, item: LogItem) -> bool:
        """Whether an item lies below the floor, at a key that had become free.

        A key becomes free after ``ERASE_MS``: this writer was suspended for that long between
        reading the log's end and putting.
        """
        if 0 <= self.reader.now() - end.as_of_ms <= ERASE_MS // 2:
            return False
        return (await self.reader.end(key)).floor >= item.sort_key.position

    async def _was_purged(self, key: ChatKey, end: LogEnd, item: LogItem) -> bool:
        """Whether a purge has removed the chat since its end was read.

        The chat may have begun again: what others save to it at its first positions would be
        hidden by an item that brings the old floor back.
        """
        is_young = end.written_ms > self.reader.now() - ERASE_MS // 2  # no purge touches it
        if end.unknown or not end.is_dead or is_young:
            return False
        newest = await self.reader.item(key, end.newest)
        # A chat that begins again may have an item at the same key, but a younger one.
        if newest is not None and newest.written_ms == end.written_ms:
            return False
        # A writer that goes on above the item raises the anchor, and removes what lies below the
        # floor. It has acknowledged what it wrote there: the item must stay.
        oldest = await self.reader.oldest(key)
        if oldest is None or (
            oldest.sort_key < item.sort_key and oldest.written_ms > end.written_ms
        ):
            return True
        return (await self.reader.end(key)).newest == item.sort_key

    async def reserve(self, key: ChatKey, before: LogEnd, end: LogEnd) -> LogEnd:
        """Reserve positions, so that none is used twice when the whole log has expired.

        Args:
            key: which chat.
            before: the log's end before the newest item.
            end: the one after it.
        """
        # A purge may be removing a chat in which nothing lived: what it saw of the anchor, its
        # token, must change when entries come.
        if end.expires_at is None or (end.last <= end.reserved and not before.is_dead):
            return end
        anchor = LogItem(
            sort_key=SortKey(0),
            kind=Kind.ANCHOR,
            written_ms=end.written_ms,
            reserved=max(end.reserved, reserve_for(end.last)),
            token=os.urandom(TOKEN_BYTES),
        )
        try:
            if not await self._put_anchor(key, anchor):
                found = await self.reader.item(key, SortKey(0))
                if found is not None:
                    anchor = attrs.evolve(anchor, reserved=max(anchor.reserved, found.reserved))
                await self._put_anchor(key, anchor)  # refused again: another writer's is new
        except StorageError as error:  # the entries are stored; the next append tries again
            logger.warning("the anchor of a chat could not be raised: %s", error)
            return end
        return attrs.evolve(end, reserved=anchor.reserved)

    async def _put_anchor(self, key: ChatKey, anchor: LogItem) -> bool:
        value = {"N": str(anchor.reserved)}
        condition = "attribute_not_exists(pk) OR #reserved <= :reserved"
        return await self.table.put_if(to_attributes(key, anchor), key, condition, reserved=value)


def lost_every_race(table: TableClient, key: ChatKey) -> StorageUnavailableError:
    """Return the error of a writer that found the next key taken for too long."""
    return StorageUnavailableError(
        f"DynamoDB table {table.name!r}, {key}: other writers took the next place of the log "
        f"for {table.timeout:g} seconds; nothing was stored, try again",
        key=key,
    )


async def _packed(text: str, room: int) -> Body:
    if len(text) < _IN_THREAD:
        return pack(text, room)
    return await asyncio.to_thread(pack, text, room)
