"""Removing for good what deleted chats, and appends that failed half-way, have left."""

from __future__ import annotations

from typing import Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.storage.dynamodb.calls import Calls
from agent_memory.storage.dynamodb.items import HEADER
from agent_memory.storage.dynamodb.lanes import Lanes
from agent_memory.storage.dynamodb.listing import Lister
from agent_memory.storage.dynamodb.places import (
    END,
    LOG,
    PART,
    PLACE_BYTES,
    SUMMARY,
    TOKEN_BYTES,
    Place,
    log_key,
    prefix,
    split_sort_key,
)
from agent_memory.storage.dynamodb.reader import LogReader
from agent_memory.storage.dynamodb.tails import ERASE_MS

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
