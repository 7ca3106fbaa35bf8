"""Appending: functions over a SQLAlchemy ``Connection``, inside a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from sqlalchemy import Connection

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, same_payload
from agent_memory.storage.requests import conflict
from agent_memory.storage.sql.entries import Append, RowCodec
from agent_memory.storage.sql.statements import HEAD_SIZES, ID_SIZES, Statements


@attrs.frozen
class Head:
    """A chat's row: its number, its floor and the position of its newest entry."""

    number: int
    floor: int
    last: int


def now() -> int:
    """Return the time as the tables keep it: microseconds since 1970."""
    return time.time_ns() // 1_000


def append_group(
    connection: Connection, statements: Statements, appends: Sequence[Append]
) -> list[LogSlice]:
    """Append several batches, none of whose ids is known.

    There is no look-up: the unique index refuses a known id, and with it the whole transaction.

    Returns:
        What each append stored, in the order given.
    """
    counts: dict[ChatKey, int] = {}
    for append in appends:
        counts[append.key] = counts.get(append.key, 0) + len(append.entries)
    heads = raise_last(connection, statements, counts)
    free = {key: head.last - counts[key] + 1 for key, head in heads.items()}
    rows: list[dict[str, Any]] = []
    stored: list[LogSlice] = []
    for append in appends:
        head, first = heads[append.key], free[append.key]
        free[append.key] = first + len(append.entries)
        rows += _placed_rows(head, first, append.rows)
        stored.append(LogSlice(_placed(append.key, first, append.entries), head.floor))
    statements.add_entry.run_many(connection, rows)
    return stored


def append_known(
    connection: Connection, statements: Statements, codec: RowCodec, append: Append
) -> LogSlice:
    """Append one batch, some of whose ids may be known already.

    Raises:
        StorageConflictError: an id is known with another payload.
    """
    key = append.key
    head = raise_last(connection, statements, {key: 0})[key]
    known = _known(connection, statements, codec, head.number, append)
    for entry in append.entries:
        if entry.id in known and not same_payload(known[entry.id], entry):
            raise conflict(key, entry.id)
    new = [entry.id not in known for entry in append.entries]
    entries = [entry for entry, is_new in zip(append.entries, new, strict=True) if is_new]
    rows = [row for row, is_new in zip(append.rows, new, strict=True) if is_new]
    if entries:
        last = {"chat": head.number, "value": head.last + len(entries), "now": now()}
        statements.set_last.run(connection, last)
        statements.add_entry.run_many(connection, _placed_rows(head, head.last + 1, rows))
    placed = _placed(key, head.last + 1, entries)
    known.update((entry.id, entry) for entry in placed)
    return LogSlice([known[entry.id] for entry in append.entries], head.floor)


def _placed_rows(head: Head, first: int, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    chat = head.number
    return [{"chat": chat, "position": first + i, **row} for i, row in enumerate(rows)]


def _placed(key: ChatKey, first: int, entries: Sequence[Entry]) -> list[Entry]:
    return [entry.placed(first + i, key.agent_id) for i, entry in enumerate(entries)]


def raise_last(
    connection: Connection, statements: Statements, counts: Mapping[ChatKey, int]
) -> dict[ChatKey, Head]:
    """Lock chats and raise their last positions, making the chats that are new.

    Args:
        counts: by how much each is raised.

    Returns:
        Their heads afterwards.
    """
    heads: dict[ChatKey, Head] = {}
    # In key order, so that two transactions never wait for each other.
    for keys in _chunks(sorted(counts), HEAD_SIZES):
        values: dict[str, Any] = {"now": now()}
        for i, key in enumerate(keys):
            for name, value in statements.key_values(key).items():
                values[f"{name}_{i}"] = value
            values[f"last_{i}"] = counts[key]
        heads.update(_raise(connection, statements, keys, values))
    return heads


def _raise(
    connection: Connection,
    statements: Statements,
    keys: Sequence[ChatKey],
    values: Mapping[str, Any],
) -> Iterator[tuple[ChatKey, Head]]:
    raising = statements.heads(len(keys))
    if statements.returns_heads:
        rows = raising.rows(connection, values)
    else:
        raising.run(connection, values)
        rows = statements.read_heads(len(keys)).rows(connection, values)
    if len(rows) == 1:
        yield keys[0], Head(*rows[0][3:])
        return
    by_values = {tuple(statements.key_values(key).values()): key for key in keys}
    for row in rows:
        yield by_values[tuple(row[:3])], Head(*row[3:])


def _known(
    connection: Connection, statements: Statements, codec: RowCodec, chat: int, append: Append
) -> dict[str, Entry]:
    known: dict[str, Entry] = {}
    ids = [row["id"] for row in append.rows]
    largest = ID_SIZES[-1]
    for start in range(0, len(ids), largest):
        chunk = ids[start : start + largest]
        size = next(size for size in ID_SIZES if size >= len(chunk))
        padded = chunk + chunk[-1:] * (size - len(chunk))
        values = {"chat": chat, **{f"id_{i}": value for i, value in enumerate(padded)}}
        for row_id, position, body in statements.known(size).rows(connection, values):
            entry = codec.decode(body, chat, position, append.key.agent_id)
            known[statements.id_text(row_id)] = _readable(append.key, entry)
    return known


def _readable(key: ChatKey, entry: Entry) -> Entry:
    if not (isinstance(entry, Note) and entry.kind == "corrupted"):
        return entry
    location = entry.data["location"]
    raise CorruptedRecordError(
        f"what the chat of {key} holds under an id given cannot be read, so that it cannot be "
        f"told whether it is the same message; see {location}. Nothing was stored",
        key=key,
        location=location,
    )


def _chunks(keys: Sequence[ChatKey], sizes: Sequence[int]) -> Iterator[Sequence[ChatKey]]:
    start = 0
    while start < len(keys):
        size = next(size for size in sizes if size <= len(keys) - start)
        yield keys[start : start + size]
        start += size
