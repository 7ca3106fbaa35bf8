"""Trim, delete and purge: a floor is appended, then what lies below it is removed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage._engine.group_commit import LoopGroupCommit
from agent_memory.storage.dynamodb.log_end import (
    ERASE_MS,
    LogEnd,
    next_floor,
    tombstone,
)
from agent_memory.storage.dynamodb.log_reader import LogReader
from agent_memory.storage.dynamodb.summary_items import SummaryRecords
from agent_memory.storage.dynamodb.table_client import TableClient
from agent_memory.storage.dynamodb.table_layout import (
    END,
    HEADER,
    LOG,
    PART,
    SORT_KEY_BYTES,
    SUMMARY,
    TOKEN_BYTES,
    Kind,
    LogItem,
    SortKey,
    from_attributes,
    join_lines,
    last_sort_key_at,
    log_key,
    part_keys,
    prefix,
    split_sort_key,
)
from agent_memory.storage.dynamodb.writer import LogWriter, lost_every_race

logger: Final = logging.getLogger(__name__)

_PART_KEYS: Final = ("pk", "sk", "at")

_LESS_CUT: Final = "#kind = :append AND (attribute_not_exists(#skip) OR #skip < :skip)"


@attrs.frozen
class LogRemover:
    """Raises floors and removes what lies below them, deleted chats, and parts without an item.

    Args:
        table: sends the requests.
        reader: reads the logs.
        writer: writes items.
        saves: the queue in which a trim, or the removal of a chat, takes its turn.
        records: the summary records, void below a floor.
    """

    table: TableClient
    reader: LogReader
    writer: LogWriter
    saves: LoopGroupCommit[str]
    records: SummaryRecords

    async def forget(self, key: ChatKey, keep: int) -> int:
        """Remove all but the newest `keep` messages; return how many were removed."""
        end, removed = await self.saves.call(partial(self._raise_floor, key, keep), key)
        if end.floor:
            await asyncio.gather(self.records.remove_below(key, end.floor), self._sweep(key, end))
        return removed

    async def _raise_floor(self, key: ChatKey, keep: int) -> tuple[LogEnd, int]:
        """Append a floor; return the log's end, and how many messages it removes."""
        backoff = Backoff(self.table.timeout)
        while True:
            known = self.writer.ends.take(key, self.reader.now())
            positions, end = await self.reader.messages(key, 0 if known is None else known.floor)
            floor = _floor(end, positions, keep)
            after = await self._put_floor(key, end, floor) if floor > end.floor else end
            if after is not None:
                # An end that was only read is not relied on. Its newest item may be that of a save
                # in flight, which takes it back if the chat was purged; and a purge goes by when
                # a dead chat was written to.
                known_before = known is not None and known.newest == end.newest
                if after is not end or (known_before and not end.is_dead):
                    self.writer.ends.put(key, after)
                return after, sum(position <= floor for position in positions)
            if backoff.expired:
                raise lost_every_race(self.table, key)
            await backoff.wait()

    async def _put_floor(self, key: ChatKey, end: LogEnd, floor: int) -> LogEnd | None:
        item = attrs.evolve(
            next_floor(end, self.reader.now(), self.writer.ttl, floor),
            token=os.urandom(TOKEN_BYTES),
        )
        if not await self.table.put_if(self.writer.attributes(key, item), key):
            return None
        return await self.writer.reserve(key, end, LogEnd.after(item, end.as_of_ms))

    # ---------------------------------------------------------------------- below the floor

    async def _sweep(self, key: ChatKey, end: LogEnd) -> None:
        """Remove what lies below the floor; after a crash the next trim or delete continues."""
        stem = prefix(LOG, key)
        low, high = stem + SortKey(1).to_bytes(), stem + last_sort_key_at(end.floor + 1).to_bytes()
        pages = self.table.query(key.user_id, low, high, key=key, only=HEADER)
        while not pages.done:
            items = [from_attributes(attributes) for attributes in await pages.next()]
            older = [item for item in items if item.sort_key < end.newest]
            await self._remove(key, [item for item in older if item.last <= end.floor])
            for item in older:
                if item.kind is Kind.APPEND and item.last > end.floor:
                    await self._cut(key, item, end.floor)

    async def _remove(self, key: ChatKey, items: Sequence[LogItem]) -> None:
        """Remove items; a younger one leaves a tombstone, see ``ERASE_MS``."""
        for item in items:
            await self.table.delete_all(part_keys(key, item), key)
        before = self.reader.now() - ERASE_MS
        old = [log_key(key, item.sort_key) for item in items if item.written_ms <= before]
        young = [
            self.writer.attributes(key, tombstone(item))
            for item in items
            if item.written_ms > before and item.kind is Kind.APPEND
        ]
        await self.table.put_all(young, key)
        await self.table.delete_all(old, key)

    async def _cut(self, key: ChatKey, item: LogItem, floor: int) -> None:
        """Rewrite an item without the entries that lie below the floor."""
        skip = floor + 1 - item.sort_key.position
        whole = await self.reader.item(key, item.sort_key) if skip > item.skip else None
        if whole is None or whole.kind is not Kind.APPEND or skip <= whole.skip:
            return
        body = await self.reader.body(key, whole)
        if body is None:
            return
        lines = body.split("\n")[skip - whole.skip :]
        bare = attrs.evolve(whole, skip=skip, text=None, zipped=None, parts=0)
        values = {"skip": {"N": str(skip)}, "append": {"S": Kind.APPEND.value}}
        if await self.writer.put_with_body(key, bare, join_lines(lines), _LESS_CUT, **values):
            await self.table.delete_all(part_keys(key, whole), key)

    # ------------------------------------------------------------------------------- purging

    async def purge(self, age_ms: int) -> int:
        """Remove chats without living entries, last written `age_ms` ago; return how many.

        An age under an hour counts as an hour.
        """
        purged = 0
        for user_id in await self.reader.users():
            previous, is_done = None, False
            while not is_done:
                chats, previous = await self.reader.chats_after(user_id, None, previous)
                is_done = previous is None
                for key, end in chats:
                    if self._may_be_forgotten(end, age_ms):
                        work = partial(self._purge_chat, key, age_ms)
                        purged += await self.saves.call(work, key)
            await self._purge_parts(user_id)
        return purged

    async def _purge_chat(self, key: ChatKey, age_ms: int) -> bool:
        end = await self.reader.end(key)
        if not self._may_be_forgotten(end, age_ms):
            return False
        # Another process may append at any moment. What is removed was read before the log was
        # seen to end as it did: then nothing in it lives, and what is appended from now on stays.
        # Parts are removed with their items: others may belong to an append under way.
        records = await self._items_of(key, SUMMARY, ("pk", "sk"))
        log = await self._items_of(key, LOG, HEADER)
        items = [from_attributes(attributes) for attributes in log]
        if not items or items[-1].sort_key != end.newest:
            return False
        self.writer.ends.take(key, self.reader.now())
        parts = [part for item in items for part in part_keys(key, item)]
        anchor = items[0] if items[0].kind is Kind.ANCHOR else None
        rest = log if anchor is None else log[1:]
        # The newest item goes last: until then the floor is known, and a purge can go on.
        await self.table.delete_all([*records, *parts, *rest[:-1]], key)
        await self.table.delete_all(rest[-1:], key)
        # A save since then needs the anchor, and has written it again with another token.
        return anchor is None or await self.table.delete_if(
            log_key(key, anchor.sort_key), key, "#token = :token", token={"B": anchor.token}
        )

    def _may_be_forgotten(self, end: LogEnd, age_ms: int) -> bool:
        """Whether a chat is dead, so old, and no writer relies on what it knows of the log.

        Such a writer would go on above the place where the chat has begun again: its floor
        would hide what was saved there, or readers would miss what lay below.
        """
        now = self.reader.now()
        if not end.is_dead:
            return False
        if end.wholly_expired(now) and (end.expires_at or 0) * 1000 > now - ERASE_MS:
            return False
        return end.written_ms <= now - max(age_ms, ERASE_MS)

    async def _items_of(
        self, key: ChatKey, kind: bytes, only: Sequence[str]
    ) -> list[dict[str, Any]]:
        stem = prefix(kind, key)
        return await self.table.query(key.user_id, stem, stem + END, key=key, only=only).all()

    async def _purge_parts(self, user_id: str) -> None:
        """Remove parts without an item, if they are too old for an append under way."""
        pages = self.table.query(user_id, PART, PART + END, only=_PART_KEYS)
        before = self.reader.now() - ERASE_MS
        shown: dict[tuple[ChatKey, bytes], bytes] = {}
        while not pages.done:
            for part in await pages.next():
                key, rest = split_sort_key(user_id, part["sk"]["B"])
                sort_key, token = rest[:SORT_KEY_BYTES], rest[SORT_KEY_BYTES:][:TOKEN_BYTES]
                if (key, sort_key) not in shown:
                    shown = {
                        (key, sort_key): await self._token_at(key, SortKey.from_bytes(sort_key))
                    }
                if shown[key, sort_key] != token and int(part["at"]["N"]) <= before:
                    await self.table.delete_all([part], key)

    async def _token_at(self, key: ChatKey, sort_key: SortKey) -> bytes:
        item = await self.table.get(log_key(key, sort_key), key)
        return b"" if item is None else bytes(item.get("token", {"B": b""})["B"])


def _floor(end: LogEnd, positions: Sequence[int], keep: int) -> int:
    if keep == 0:
        return end.last
    return end.floor if len(positions) < keep else positions[-keep] - 1
