"""Summary records, in a table of their own beside the chats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.records import SummaryRecord
from agent_memory.storage.codec import decode_record, encode_record
from agent_memory.storage.sql.reading import lock
from agent_memory.storage.sql.statements import Executor, Statements
from agent_memory.storage.summaries import SummaryStore

if TYPE_CHECKING:
    from agent_memory.storage.sql.storage import SqlChatStorage

_log = logging.getLogger(__name__)


def save(
    connection: Executor,
    statements: Statements,
    key: ChatKey,
    record: SummaryRecord,
    replaces: str | None,
) -> bool:
    """Store a record if its predecessor is the newest; see ``SummaryStore.save_summary``."""
    head = lock(connection, statements, key)
    if head is None or not record.fits(head.floor, head.last):
        return False
    records = statements.records
    newest_row = records.newest.row(connection, {"chat": head.number})
    number, newest = (
        (0, None) if newest_row is None else (newest_row[0], statements.id_text(newest_row[1]))
    )
    if newest == record.id or newest != replaces:
        return newest == record.id
    body = encode_record(record)
    row = (head.number, number + 1, statements.id_value(record.id), body)
    records.add.run(connection, [row])
    return True


def load(connection: Executor, statements: Statements, key: ChatKey) -> SummaryRecord | None:
    """Return the newest record, or None.

    Raises:
        CorruptedRecordError: it cannot be read; unless a newer version wrote it, its
            `record_id` is what a record names that replaces it.
    """
    row = statements.records.load.row(connection, statements.key_values(key))
    if row is None:
        return None
    chat, number, body = row
    try:
        return decode_record(body, key.agent_id, location=_location(statements, chat, number))
    except CorruptedRecordError as error:
        newest = statements.records.newest.row(connection, {"chat": chat})
        if newest is not None and newest[0] == number and not error.is_newer:
            error.record_id = statements.id_text(newest[1])
        raise


def list_readable(
    connection: Executor, statements: Statements, key: ChatKey
) -> list[SummaryRecord]:
    """Return all records that can be read, oldest first."""
    readable: list[SummaryRecord] = []
    for chat, number, body in statements.records.list.rows(connection, statements.key_values(key)):
        location = _location(statements, chat, number)
        try:
            readable.append(decode_record(body, key.agent_id, location=location))
        except CorruptedRecordError as error:
            _log.warning("unreadable summary record: %s", error)
    return readable


def forget(connection: Executor, statements: Statements, key: ChatKey) -> int:
    """Remove all records of a chat and return how many there were."""
    head = lock(connection, statements, key)
    return 0 if head is None else statements.records.drop.run(connection, {"chat": head.number})


def _location(statements: Statements, chat: int, number: int) -> str:
    return f"table {statements.tables.records.fullname}, chat {chat}, number {number}"


class SqlSummaries(SummaryStore):
    """The summary records of a :class:`SqlChatStorage`'s chats."""

    def __init__(self, storage: SqlChatStorage) -> None:
        self._storage = storage

    async def save_summary(
        self, key: ChatKey, record: SummaryRecord, *, replaces: str | None
    ) -> bool:
        """Store a record if its predecessor is still the newest."""
        return await self._storage._write(
            lambda connection, statements: save(connection, statements, key, record, replaces),
            key=key,
            repeatable=True,  # once stored, it is the newest, and True is answered again
        )

    async def load_summary(self, key: ChatKey) -> SummaryRecord | None:
        """Return the newest record, or None."""
        return await self._storage._query(
            lambda connection, statements: load(connection, statements, key), key=key
        )

    async def list_summaries(self, key: ChatKey) -> list[SummaryRecord]:
        """Return all readable records, oldest first."""
        return await self._storage._query(
            lambda connection, statements: list_readable(connection, statements, key), key=key
        )

    async def forget_summaries(self, key: ChatKey) -> int:
        """Remove all records of the chat and return how many there were."""
        count = await self._storage._write(
            lambda connection, statements: forget(connection, statements, key),
            key=key,
            erases=True,
        )
        await self._storage._erase_deleted()
        return count
