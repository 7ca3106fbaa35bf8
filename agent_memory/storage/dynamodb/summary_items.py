"""Summary records, in items beside the log."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import attrs

from agent_memory.errors import CorruptedRecordError, StorageUnavailableError
from agent_memory.log import SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.backoff import Backoff
from agent_memory.storage.codec import decode_record, encode_record
from agent_memory.storage.dynamodb.log_end import ERASE_MS
from agent_memory.storage.dynamodb.log_reader import LogReader
from agent_memory.storage.dynamodb.table_client import TableClient
from agent_memory.storage.dynamodb.table_layout import (
    END,
    LAYOUT,
    SUMMARY,
    TOKEN_BYTES,
    check_version,
    item_key,
    prefix,
    split,
    unpack,
    zipped,
)
from agent_memory.storage.hooks import Found

_KEYS: Final = ("pk", "sk", "floor")

_COPIED: Final = 32_768
"""The most bytes of a record of which the pointer holds a copy: each save reads the pointer."""


@attrs.frozen
class _NewestPointer:
    """The item that names the newest record: a compare-and-swap replaces it.

    Args:
        id, number, floor, token: of that record.
        copy: the item, if it also holds the record: then no further request is needed.
    """

    id: str
    number: int
    floor: int
    token: bytes
    copy: dict[str, Any] | None


@attrs.frozen
class SummaryRecords:
    """Stores summary records, each in parts; a pointer names the newest and may hold a copy.

    A record is valid only while its floor is the chat's. So a trim voids all of them in the same
    step, whenever their items are removed.

    Args:
        table: sends the requests.
        reader: reads the logs' ends.
        ttl: how many seconds records live at least; None for ever.
        ttl_attribute: the attribute by which DynamoDB knows when to remove an item.
    """

    table: TableClient
    reader: LogReader
    ttl: int | None
    ttl_attribute: str

    async def put(self, key: ChatKey, record: SummaryRecord, replaces: str | None) -> bool:
        """Store a record, as ``SummaryStore.save_summary`` promises."""
        backoff = Backoff(self.table.timeout)
        while True:
            end = await self.reader.end(key)
            if end.unknown or not record.fits(end.floor, end.last):
                return False
            newest = await self._newest(key)
            newest_id = newest.id if newest is not None and newest.floor == end.floor else None
            if newest_id == record.id or newest_id != replaces:
                return newest_id == record.id
            if await self._swap(key, record, newest, replaces):
                return True
            if backoff.expired:
                raise StorageUnavailableError(
                    f"the newest summary of {key} keeps changing; nothing was stored", key=key
                )
            await backoff.wait()

    async def read(self, key: ChatKey, *, newest_only: bool) -> Found:
        """Return the records that have been the newest, oldest first; or the newest alone."""
        end, newest = await asyncio.gather(self.reader.end(key), self._newest(key))
        if newest is None or newest.floor != end.floor or end.unknown:
            return []
        return await (self._read_newest(key, newest) if newest_only else self._all(key, newest))

    async def _read_newest(self, key: ChatKey, newest: _NewestPointer) -> Found:
        if newest.copy is not None:
            return [self._decoded(key, newest.id, [newest.copy])]
        low = _record_stem(key, newest.number) + newest.token
        parts = await self.table.query(key.user_id, low, low + END, key=key).all()
        if not parts and await self._newest(key) != newest:
            return []  # it was forgotten or replaced between the two reads
        return [self._decoded(key, newest.id, parts)]

    async def _all(self, key: ChatKey, newest: _NewestPointer) -> Found:
        # By what each replaced: a record that lost its swap may be in the table, but is no link.
        by_id = await self._parts_by_id(key)
        records: list[SummaryRecord | CorruptedRecordError] = []
        following: str | None = newest.id
        while following is not None and following in by_id:
            parts = by_id.pop(following)
            records.append(self._decoded(key, following, parts))
            following = parts[0]["prev"]["S"] if "prev" in parts[0] else None
        return records[::-1]

    async def drop(self, key: ChatKey) -> int:
        """Remove all records and return how many readable ones there were."""
        found = await self.read(key, newest_only=False)
        await self.remove_below(key, None)
        return sum(isinstance(record, SummaryRecord) for record in found)

    async def remove_below(self, key: ChatKey, floor: int | None) -> None:
        """Remove the records with a lower floor; all if it is None."""
        stem = prefix(SUMMARY, key)
        items = await self.table.query(key.user_id, stem, stem + END, key=key, only=_KEYS).all()
        outdated = [item for item in items if floor is None or int(item["floor"]["N"]) < floor]
        await self.table.delete_all(outdated, key)

    # ------------------------------------------------------------------------------- items

    async def _newest(self, key: ChatKey) -> _NewestPointer | None:
        item = await self.table.get(_newest_key(key), key)
        if item is None:
            return None
        try:
            check_version(item)
            return _NewestPointer(
                item["id"]["S"],
                int(item["number"]["N"]),
                int(item["floor"]["N"]),
                bytes(item["token"]["B"]),
                item if "zip" in item else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._corrupted(key, "head", error) from error

    async def _swap(
        self,
        key: ChatKey,
        record: SummaryRecord,
        newest: _NewestPointer | None,
        replaces: str | None,
    ) -> bool:
        """Put a record's parts, then replace the pointer if it is still `newest`."""
        token, number = os.urandom(TOKEN_BYTES), 1 if newest is None else newest.number + 1
        common = self._common(record, token)
        predecessor = {"prev": {"S": replaces}} if replaces is not None else {}
        parts = [
            {
                **item_key(key.user_id, _record_stem(key, number) + token + _number(index)),
                **common,
                **predecessor,
                "zip": {"B": part},
            }
            for index, part in enumerate(split(zipped(encode_record(record))))
        ]
        await self.table.put_all(parts, key)
        item = {**_newest_key(key), **common, "number": {"N": str(number)}}
        if len(parts) == 1 and len(parts[0]["zip"]["B"]) <= _COPIED:
            item["zip"] = parts[0]["zip"]
        if newest is None:
            stored = await self.table.put_if(item, key)
        else:
            before = {"B": newest.token}
            stored = await self.table.put_if(item, key, "#token = :before", before=before)
        if not stored:
            await self.table.delete_all(parts, key)
        return stored

    def _common(self, record: SummaryRecord, token: bytes) -> dict[str, Any]:
        common: dict[str, Any] = {
            "v": {"N": str(LAYOUT)},
            "id": {"S": record.id},
            "floor": {"N": str(record.floor)},
            "token": {"B": token},
        }
        if self.ttl is not None:
            seconds = (self.reader.now() + ERASE_MS) // 1000 + self.ttl
            common[self.ttl_attribute] = {"N": str(seconds)}
        return common

    async def _parts_by_id(self, key: ChatKey) -> dict[str, list[dict[str, Any]]]:
        low = prefix(SUMMARY, key) + b"r"
        found: dict[str, dict[bytes, list[dict[str, Any]]]] = {}
        for part in await self.table.query(key.user_id, low, low + END, key=key).all():
            token = bytes(part["token"]["B"])
            found.setdefault(part["id"]["S"], {}).setdefault(token, []).append(part)
        return {record_id: list(tokens.values())[-1] for record_id, tokens in found.items()}

    def _decoded(
        self, key: ChatKey, record_id: str, parts: list[dict[str, Any]]
    ) -> SummaryRecord | CorruptedRecordError:
        location = f"DynamoDB table {self.table.name!r}, summary record of {key}"
        try:
            for part in parts:
                check_version(part)
            text = unpack(b"".join(part["zip"]["B"] for part in parts))
            return decode_record(text, key.agent_id, location=location)
        except (KeyError, TypeError, ValueError) as error:
            unreadable = self._corrupted(key, "record", error)
        except CorruptedRecordError as error:
            unreadable = error
        unreadable.record_id = None if unreadable.is_newer else record_id
        return unreadable

    def _corrupted(self, key: ChatKey, what: str, error: Exception) -> CorruptedRecordError:
        location = f"DynamoDB table {self.table.name!r}, summary {what} of {key}"
        return CorruptedRecordError(f"unreadable: {location}: {error!r}", location=location)


def _newest_key(key: ChatKey) -> dict[str, Any]:
    return item_key(key.user_id, prefix(SUMMARY, key) + b"h")


def _record_stem(key: ChatKey, number: int) -> bytes:
    return prefix(SUMMARY, key) + b"r" + number.to_bytes(8, "big")


def _number(index: int) -> bytes:
    return index.to_bytes(4, "big")
