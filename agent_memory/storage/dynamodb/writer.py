"""Appending to a log."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import Sequence
from typing import Any, Final

import attrs

from agent_memory.errors import MessageTooLargeError, StorageError, StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.dynamodb.lanes import Lane, Lanes
from agent_memory.storage.dynamodb.log_end import (
    ERASE_MS,
    LogEnd,
    next_append,
    reserve_for,
    tombstone,
)
from agent_memory.storage.dynamodb.planning import Plan, Save, group, plan
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.table_client import TableClient
from agent_memory.storage.dynamodb.table_layout import (
    ITEM_LIMIT,
    LAYOUT,
    MAX_ENTRIES,
    TOKEN_BYTES,
    Body,
    Kind,
    LogItem,
    SortKey,
    join_lines,
    pack,
    part_key,
    size_of,
    to_attributes,
)

logger: Final = logging.getLogger(__name__)

_LONGEST_RACE_PAUSE: Final = 0.05
_IN_THREAD: Final = 100_000  # characters from which compressing may hold up other chats


@attrs.frozen
class LogWriter:
    """Appends to logs: one item an append, put where no other item is.

    Args:
        table: sends the requests.
        reader: reads the logs.
        lanes: what is known of the chats.
        ttl: how many seconds entries live; None for ever.
        ttl_attribute: the attribute that tells DynamoDB when to remove an item.
    """

    table: TableClient
    reader: LogReader
    lanes: Lanes
    ttl: int | None
    ttl_attribute: str

    async def append(
        self, key: ChatKey, entries: Sequence[Entry], texts: Sequence[str]
    ) -> LogSlice:
        """Append entries; what ``ChatStorage._append`` promises.

        Whoever has the chat's lock writes everything that waits; the others find it done.
        """
        if len(entries) > MAX_ENTRIES:
            raise MessageTooLargeError(
                f"{len(entries):,} messages in one save; DynamoDbChatStorage appends at most "
                f"{MAX_ENTRIES:,} in one atomic step: save in several calls",
                key=key,
            )
        lane, save = self.lanes.of(key), Save(entries, texts)
        lane.waiting.append(save)
        try:
            async with lane.lock:
                if not save.done:
                    await self._write_waiting(key, lane)
        finally:
            if save in lane.waiting:  # cancelled, in a loop of the caller's own
                lane.waiting.remove(save)
        if save.outcome is None:
            raise save.error or AssertionError("a save ended without an outcome")
        return save.outcome

    async def _write_waiting(self, key: ChatKey, lane: Lane) -> None:
        saves = group(lane.waiting)
        try:
            await self._store(key, lane, saves)
        except Exception as error:  # noqa: BLE001 (each of the callers raises it)
            lane.end = None
            for save in saves:
                save.error = save.error or copy.copy(error).with_traceback(error.__traceback__)
                save.error.__cause__ = save.error.__cause__ or error.__cause__
        finally:
            lane.waiting[:] = [save for save in lane.waiting if not save.done]

    async def _store(self, key: ChatKey, lane: Lane, saves: list[Save]) -> None:
        backoff = Backoff(self.table.timeout, _LONGEST_RACE_PAUSE)
        while True:
            end = lane.end
            if end is None or not end.fresh(self.reader.now()) or self._expiring(end):
                end = await self.reader.end(key)
            planned = await self._plan(key, end, saves)
            lane.end = None if planned is None else await self._carried_out(key, end, planned)
            if planned is not None and lane.end is not None:
                return _finish(planned, lane.end.floor)
            if backoff.expired:
                raise lost_every_race(self.table, key)
            await backoff.wait()

    def _expiring(self, end: LogEnd) -> bool:
        now = self.reader.now()
        return end.wholly_expired(now) or end.partly_expired(now)

    async def _plan(self, key: ChatKey, end: LogEnd, saves: list[Save]) -> Plan | None:
        """Return what to do; None if the floor has risen above the one in `end`."""
        ids = [entry.id for save in saves for entry in save.entries]
        known: dict[str, Entry] = {}
        if positions := end.matches(ids):
            first, count = positions[0], positions[-1] - positions[0] + 1
            found = await self.reader.read(key, after=first - 1, first=count)
            if found.floor != end.floor:
                return None
            known = {entry.id: entry for entry in found.decode().entries}
        return plan(key, end, saves, known)

    async def _carried_out(self, key: ChatKey, end: LogEnd, planned: Plan) -> LogEnd | None:
        """Put one item, and return the log's end after it; None if its place is taken."""
        if not planned.entries:
            return end
        sent = self.reader.now()
        ids = [entry.id for entry in planned.entries]
        item = next_append(end, sent, self.ttl, ids, planned.notes)
        stored = await self.put_with_body(key, item, join_lines(planned.texts))
        if stored is None or await self._in_dead_space(key, end, stored):
            return None
        return await self.reserve(key, LogEnd.after(stored, sent))

    async def put_with_body(
        self, key: ChatKey, item: LogItem, text: str, condition: str = ""
    ) -> LogItem | None:
        """Put an item with its body, its parts first, and return it; None if refused.

        Args:
            key: which chat.
            item: the item, without token and body.
            text: its body.
            condition: on the item that it replaces, in terms of ``:skip`` and ``:append``;
                by default that there is none.
        """
        item = attrs.evolve(item, token=os.urandom(TOKEN_BYTES))
        header = {**self.attributes(key, item), "parts": {"N": "1"}, "text": {"S": ""}}
        body = await _packed(text, ITEM_LIMIT - size_of(header))
        item = attrs.evolve(item, text=body.text, zipped=body.zipped, parts=len(body.parts))
        await self._put_parts(key, item, body)
        try:
            stored = await self._put_item(key, item, condition)
        except StorageError as error:
            if error.stored is False:
                await self.drop_parts(key, item)
            raise
        if not stored:
            await self.drop_parts(key, item)
        return item if stored else None

    async def _put_item(self, key: ChatKey, item: LogItem, condition: str) -> bool:
        attributes = self.attributes(key, item)
        if not condition:
            return await self.table.put_new(attributes, key)
        return await self.table.put_if(
            attributes, key, condition, skip={"N": str(item.skip)}, append={"S": Kind.APPEND.value}
        )

    def attributes(self, key: ChatKey, item: LogItem) -> dict[str, Any]:
        """Return an item as the client takes it, with what DynamoDB's TTL looks at."""
        return {**to_attributes(key, item), **self._removal(item.expires_at)}

    def _removal(self, expires_at: int | None) -> dict[str, Any]:
        # Later than readers stop showing it: its place must outlive every writer's memory.
        if expires_at is None:
            return {}
        return {self.ttl_attribute: {"N": str(expires_at + ERASE_MS // 1000)}}

    async def _put_parts(self, key: ChatKey, item: LogItem, body: Body) -> None:
        parts = [
            {
                **part_key(key, item.sort_key, item.token, number),
                "v": {"N": str(LAYOUT)},
                "at": {"N": str(item.written_ms)},
                "zip": {"B": part},
                **self._removal(item.expires_at),
            }
            for number, part in enumerate(body.parts)
        ]
        try:
            await self.table.put_all(parts, key)
        except StorageError as error:
            error.stored = False  # parts show only with their item
            await self.drop_parts(key, item)
            raise

    async def drop_parts(self, key: ChatKey, item: LogItem) -> None:
        """Remove the parts of an item that does not show; if that fails, `purge` will."""
        try:
            await self.table.delete_all(part_keys(key, item), key)
        except StorageError as error:
            logger.warning("parts of an append that failed are left for purge(): %s", error)

    async def _in_dead_space(self, key: ChatKey, end: LogEnd, item: LogItem) -> bool:
        """Whether the writer slept so long that the place may have been given up meanwhile."""
        if 0 <= self.reader.now() - end.as_of_ms <= ERASE_MS // 2:
            return False
        now = await self.reader.end(key)
        if now.floor < item.sort_key.position:
            return False
        await self.table.put_all([self.attributes(key, tombstone(item))], key)
        await self.drop_parts(key, item)
        return True

    async def reserve(self, key: ChatKey, end: LogEnd) -> LogEnd:
        """See to it that positions are not used again when all of the log has expired."""
        if end.expires_at is None or end.last <= end.reserved:
            return end
        reserved = reserve_for(end.last)
        anchor = LogItem(
            sort_key=SortKey(0),
            kind=Kind.ANCHOR,
            written_ms=end.written_ms,
            reserved=reserved,
            token=os.urandom(TOKEN_BYTES),
        )
        value = {"N": str(reserved)}
        condition = "attribute_not_exists(pk) OR #reserved < :reserved"
        try:
            await self.table.put_if(to_attributes(key, anchor), key, condition, reserved=value)
        except StorageError as error:  # the entries are stored; the next append tries again
            logger.warning("the anchor of a chat could not be raised: %s", error)
            return end
        return attrs.evolve(end, reserved=reserved)


def lost_every_race(table: TableClient, key: ChatKey) -> StorageUnavailableError:
    """The error of a writer whom other writers left no place for too long."""
    return StorageUnavailableError(
        f"DynamoDB table {table.name!r}, {key}: other writers took the next place of the log "
        f"for {table.timeout:g} seconds; nothing was stored, try again",
        key=key,
    )


def part_keys(key: ChatKey, item: LogItem) -> list[dict[str, Any]]:
    """The primary keys of an item's parts."""
    return [part_key(key, item.sort_key, item.token, number) for number in range(item.parts)]


async def _packed(text: str, room: int) -> Body:
    if len(text) < _IN_THREAD:
        return pack(text, room)
    return await asyncio.to_thread(pack, text, room)


def _finish(planned: Plan, floor: int) -> None:
    for save, entries in planned.results:
        save.outcome = LogSlice(entries, floor)
    for save, error in planned.refusals:
        save.error = error
