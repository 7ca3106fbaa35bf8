"""What runs on a connection, but for appends: reads, lists, deletions, summary records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import decode_record, encode_record
from agent_memory.storage.sql.entries import RowCodec
from agent_memory.storage.sql.schema import KEY_COLUMNS
from agent_memory.storage.sql.statements import AnyConnection, ChatRow, Row, Statements, now

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def read(
    connection: AnyConnection,
    statements: Statements,
    key: ChatKey,
    *,
    after: int,
    first: int | None,
    last: int | None,
) -> Sequence[Row]:
    """Read a part of one chat's log, in one statement; see :func:`log_slice`."""
    values = {**statements.key_values(key), "after": after}
    statement = statements.read if after else statements.read_all
    if first is not None:
        statement, values["first"] = statements.read_first, first
    elif last is not None:
        values["newest"] = last
        return statements.read_last.rows(connection, values)[::-1]
    return statement.rows(connection, values)


def read_newest(
    connection: AnyConnection,
    statements: Statements,
    codec: RowCodec,
    key: ChatKey,
    *,
    count: int,
    characters: int,
) -> LogSlice | None:
    """Read the newest `count` entries; None if their bodies hold more `characters`."""
    values = {**statements.key_values(key), "after": 0, "newest": count}
    rows = statements.read_last.few_rows(connection, values, characters)
    return None if rows is None else log_slice(rows[::-1], codec, key)


def log_slice(rows: Sequence[Row], codec: RowCodec, key: ChatKey) -> LogSlice:
    """Decode what :func:`read` read."""
    floor = rows[0][1] if rows else 0
    entries = [
        codec.decode(body, chat, position, key.agent_id)
        for chat, _floor, position, body in rows
        if position is not None
    ]
    return LogSlice(entries, floor)


def read_session(
    connection: AnyConnection, statements: Statements, user_id: str, session_id: str
) -> Sequence[Row]:
    """Read the log of every chat of a session, in one statement; see :func:`session_slices`."""
    values = {
        "user_id": statements.id_value(user_id),
        "session_id": statements.id_value(session_id),
    }
    return statements.read_session.rows(connection, values)


def session_slices(
    rows: Sequence[Row], statements: Statements, codec: RowCodec, user_id: str, session_id: str
) -> dict[ChatKey, LogSlice]:
    """Decode what :func:`read_session` read."""
    entries: dict[str, list[Entry]] = {}
    floors: dict[str, int] = {}
    for agent, chat, floor, position, body in rows:
        agent_id = statements.id_text(agent)
        floors[agent_id] = floor
        entry = codec.decode(body, chat, position, agent_id)
        entries.setdefault(agent_id, []).append(entry)
    return {
        ChatKey(user_id, session_id, agent_id): LogSlice(log, floors[agent_id])
        for agent_id, log in entries.items()
    }


def list_page(
    connection: AnyConnection,
    statements: Statements,
    scope: Sequence[str],
    after: ChatKey | None,
    limit: int,
) -> list[ChatInfo]:
    """List chats with living entries in key order.

    Args:
        scope: none, the user id, or user and session id.
        after: only keys that come after it.
        limit: the most chats to return.
    """
    values = {
        f"scope_{name}": statements.id_value(text)
        for name, text in zip(KEY_COLUMNS, scope, strict=False)
    }
    if after is not None:
        key_values = statements.key_values(after)
        values |= {f"after_{name}": value for name, value in key_values.items()}
    page = statements.page(len(scope), after is not None)
    rows = page.rows(connection, {**values, "limit": limit})
    return [_info(statements, row) for row in rows]


def _info(statements: Statements, row: Row) -> ChatInfo:
    user_id, session_id, agent_id = map(statements.id_text, row[:3])
    floor, last, created_at, updated_at = row[3:]
    key = ChatKey(user_id, session_id, agent_id)
    return ChatInfo(key, floor, last, _datetime(created_at), _datetime(updated_at))


def _datetime(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def lock(connection: AnyConnection, statements: Statements, key: ChatKey) -> ChatRow | None:
    """Lock a chat for the transaction and return its row; None if there is no such chat."""
    row = statements.lock.row(connection, statements.key_values(key))
    return None if row is None else ChatRow(*row)


def forget(connection: AnyConnection, statements: Statements, key: ChatKey, keep: int) -> int:
    """Raise the floor so that the newest `keep` messages live; return how many went."""
    chat = lock(connection, statements, key)
    floor = None if chat is None else _new_floor(connection, statements, chat, keep)
    if chat is None or floor is None or floor <= chat.floor:
        return 0
    gone = {"chat": chat.number, "position": floor}
    counted = statements.count_messages.row(connection, gone)
    statements.drop_entries.run(connection, gone)
    statements.set_floor.run(connection, {"chat": chat.number, "value": floor, "now": now()})
    statements.drop_records.run(connection, {"chat": chat.number})
    return 0 if counted is None else int(counted[0])


def _new_floor(
    connection: AnyConnection, statements: Statements, chat: ChatRow, keep: int
) -> int | None:
    if keep == 0:
        return chat.last
    values = {"chat": chat.number, "skip": keep - 1}
    oldest = statements.oldest_kept.row(connection, values)
    return None if oldest is None else int(oldest[0]) - 1


def purge(connection: AnyConnection, statements: Statements, older_than: timedelta) -> int:
    """Remove the heads of chats that hold nothing, untouched for `older_than`; return how many."""
    before = now() - older_than // _MICROSECOND
    return statements.purge.run(connection, {"before": before})


def put_record(
    connection: AnyConnection,
    statements: Statements,
    key: ChatKey,
    record: SummaryRecord,
    replaces: str | None,
) -> bool:
    """Store a record if its predecessor is the newest; see ``SummaryStore.save_summary``."""
    chat = lock(connection, statements, key)
    if chat is None or not record.fits(chat.floor, chat.last):
        return False
    newest_row = statements.newest_record.row(connection, {"chat": chat.number})
    number, newest = (
        (0, None) if newest_row is None else (newest_row[0], statements.id_text(newest_row[1]))
    )
    if newest == record.id or newest != replaces:
        return newest == record.id
    body = encode_record(record)
    row = (chat.number, number + 1, statements.id_value(record.id), body)
    statements.add_record.insert(connection, [row])
    return True


def read_records(
    connection: AnyConnection, statements: Statements, key: ChatKey, *, newest_only: bool
) -> list[SummaryRecord | CorruptedRecordError]:
    """Read records, oldest first; an error in place of one that cannot be read.

    The error's `record_id` is what a record names that replaces the newest one, unless a newer
    version wrote that.
    """
    reading = statements.read_newest_record if newest_only else statements.read_records
    found: list[SummaryRecord | CorruptedRecordError] = []
    for chat, number, body in reading.rows(connection, statements.key_values(key)):
        location = f"table {statements.tables.records.fullname}, chat {chat}, number {number}"
        try:
            found.append(decode_record(body, key.agent_id, location=location))
        except CorruptedRecordError as error:
            newest = statements.newest_record.row(connection, {"chat": chat})
            if newest is not None and newest[0] == number and not error.is_newer:
                error.record_id = statements.id_text(newest[1])
            found.append(error)
    return found


def drop_records(connection: AnyConnection, statements: Statements, key: ChatKey) -> int:
    """Remove all records of a chat and return how many there were."""
    chat = lock(connection, statements, key)
    return 0 if chat is None else statements.drop_records.run(connection, {"chat": chat.number})
