"""Reads, trims, purges and summary records on a connection: :class:`ChatOperations`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import ChatInfo, LogSlice, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import decode_record, encode_record
from agent_memory.storage.sql.entries import RowCodec
from agent_memory.storage.sql.schema import KEY_COLUMNS
from agent_memory.storage.sql.statements import AnyConnection, ChatRow, Row, Statements, now

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@attrs.frozen
class ChatOperations:
    """Reads, lists, deletions and summary records, on one connection.

    Args:
        connection: to the database; in a transaction for what changes anything.
        statements: what is run on it.
        codec: decodes the bodies.
    """

    connection: AnyConnection
    statements: Statements
    codec: RowCodec

    # -------------------------------------------------------------------------------- reads

    def read(
        self, key: ChatKey, *, after: int, first: int | None, last: int | None
    ) -> Sequence[Row]:
        """Read a part of one chat's log, in one statement; see :meth:`RowCodec.log_slice`."""
        statements = self.statements
        values = {**statements.key_values(key), "after": after}
        statement = statements.read if after else statements.read_all
        if first is not None:
            statement, values["first"] = statements.read_first, first
        elif last is not None:
            values["newest"] = last
            return statements.read_last.rows(self.connection, values)[::-1]
        return statement.rows(self.connection, values)

    def read_newest(self, key: ChatKey, *, count: int, characters: int) -> LogSlice | None:
        """Read the newest `count` entries; None if their bodies hold more `characters`."""
        values = {**self.statements.key_values(key), "after": 0, "newest": count}
        rows = self.statements.read_last.few_rows(self.connection, values, characters)
        return None if rows is None else self.codec.log_slice(rows[::-1], key)

    def read_session(self, user_id: str, session_id: str) -> Sequence[Row]:
        """Read the log of every chat of a session; see :meth:`RowCodec.session_slices`."""
        values = {
            "user_id": self.statements.id_value(user_id),
            "session_id": self.statements.id_value(session_id),
        }
        return self.statements.read_session.rows(self.connection, values)

    def list_page(self, scope: Sequence[str], after: ChatKey | None, limit: int) -> list[ChatInfo]:
        """List chats with living entries in key order.

        Args:
            scope: none, the user id, or user and session id.
            after: only keys that come after it.
            limit: the most chats to return.
        """
        statements = self.statements
        values = {
            f"scope_{name}": statements.id_value(text)
            for name, text in zip(KEY_COLUMNS, scope, strict=False)
        }
        if after is not None:
            key_values = statements.key_values(after)
            values |= {f"after_{name}": value for name, value in key_values.items()}
        page = statements.page(len(scope), after is not None)
        return [self._info(row) for row in page.rows(self.connection, {**values, "limit": limit})]

    def _info(self, row: Row) -> ChatInfo:
        user_id, session_id, agent_id = map(self.statements.id_text, row[:3])
        floor, last, created_at, updated_at = row[3:]
        key = ChatKey(user_id, session_id, agent_id)
        return ChatInfo(key, floor, last, _datetime(created_at), _datetime(updated_at))

    # --------------------------------------------------------------------- trims, deletions

    def _lock(self, key: ChatKey) -> ChatRow | None:
        """Lock a chat for the transaction and return its row; None if there is no such chat."""
        row = self.statements.lock.row(self.connection, self.statements.key_values(key))
        return None if row is None else ChatRow(*row)

    def forget(self, key: ChatKey, keep: int) -> int:
        """Raise the floor so that the newest `keep` messages live; return how many went."""
        connection, statements = self.connection, self.statements
        chat = self._lock(key)
        floor = None if chat is None else self._new_floor(chat, keep)
        if chat is None or floor is None or floor <= chat.floor:
            return 0
        gone = {"chat": chat.number, "position": floor}
        counted = statements.count_messages.row(connection, gone)
        statements.drop_entries.run(connection, gone)
        statements.set_floor.run(connection, {"chat": chat.number, "value": floor, "now": now()})
        statements.drop_records.run(connection, {"chat": chat.number})
        return 0 if counted is None else int(counted[0])

    def _new_floor(self, chat: ChatRow, keep: int) -> int | None:
        if keep == 0:
            return chat.last
        values = {"chat": chat.number, "skip": keep - 1}
        oldest = self.statements.oldest_kept.row(self.connection, values)
        return None if oldest is None else int(oldest[0]) - 1

    def purge(self, older_than: timedelta) -> int:
        """Remove the rows of chats that hold nothing, untouched for `older_than`; count them."""
        before = now() - older_than // _MICROSECOND
        return self.statements.purge.run(self.connection, {"before": before})

    # ---------------------------------------------------------------------- summary records

    def put_record(self, key: ChatKey, record: SummaryRecord, replaces: str | None) -> bool:
        """Store a record if its predecessor is the newest; see ``SummaryStore.save_summary``."""
        statements = self.statements
        chat = self._lock(key)
        if chat is None or not record.fits(chat.floor, chat.last):
            return False
        newest_row = statements.newest_record.row(self.connection, {"chat": chat.number})
        number, newest = (
            (0, None) if newest_row is None else (newest_row[0], statements.id_text(newest_row[1]))
        )
        if newest == record.id or newest != replaces:
            return newest == record.id
        row = (chat.number, number + 1, statements.id_value(record.id), encode_record(record))
        statements.add_record.insert(self.connection, [row])
        return True

    def read_records(
        self, key: ChatKey, *, newest_only: bool
    ) -> list[SummaryRecord | CorruptedRecordError]:
        """Read records, oldest first; an error in place of one that cannot be read.

        The error's `record_id` is what a record names that replaces the newest one, unless a newer
        version wrote that.
        """
        statements = self.statements
        reading = statements.read_newest_record if newest_only else statements.read_records
        found: list[SummaryRecord | CorruptedRecordError] = []
        for chat, number, body in reading.rows(self.connection, statements.key_values(key)):
            location = f"table {statements.tables.records.fullname}, chat {chat}, number {number}"
            try:
                found.append(decode_record(body, key.agent_id, location=location))
            except CorruptedRecordError as error:
                newest = statements.newest_record.row(self.connection, {"chat": chat})
                if newest is not None and newest[0] == number and not error.is_newer:
                    error.record_id = statements.id_text(newest[1])
                found.append(error)
        return found

    def drop_records(self, key: ChatKey) -> int:
        """Remove all records of a chat and return how many there were."""
        chat = self._lock(key)
        if chat is None:
            return 0
        return self.statements.drop_records.run(self.connection, {"chat": chat.number})


def _datetime(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND
