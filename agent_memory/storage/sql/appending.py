"""Appending: functions over an ``Executor``, inside a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, is_corrupted, same_payload
from agent_memory.storage._engine.append_plan import conflict
from agent_memory.storage.sql.entries import Append, RowCodec
from agent_memory.storage.sql.statements import (
    HEAD_NAMES,
    HEAD_SIZES,
    ID_SIZES,
    Executor,
    Place,
    Row,
    Statements,
)


@attrs.define(eq=False)
class Head:
    """A chat's row: its number, its floor and the position of its newest entry."""

    number: int
    floor: int
    last: int


def now() -> int:
    """Return the time as the tables keep it: microseconds since 1970."""
    return time.time_ns() // 1_000


def append_group(
    connection: Executor, statements: Statements, appends: Sequence[Append]
) -> list[LogSlice]:
    """Append several batches, none of whose ids is known.

    There is no look-up: the unique index refuses a known id, and with it the whole transaction.

    Returns:
        What each append stored, in the order given.
    """
    counts = counted(appends)
    heads = raise_last(connection, statements, counts)
    rows: list[Row] = []
    stored: list[LogSlice] = []
    for part, part_rows in placed(appends, heads, counts):
        stored.append(part)
        rows += part_rows
    statements.add_entry.run(connection, rows)
    return stored


def counted(appends: Sequence[Append]) -> dict[Place, int]:
    """Count the entries of each chat in a group."""
    counts: dict[Place, int] = {}
    for append in appends:
        counts[append.place] = counts.get(append.place, 0) + len(append.rows)
    return counts


def placed(
    appends: Sequence[Append], heads: Mapping[Place, Head], counts: Mapping[Place, int]
) -> Iterator[tuple[LogSlice, list[Row]]]:
    """Give each append of a group its positions, in the order of the group.

    Args:
        appends: the group.
        heads: the chats' heads, raised already.
        counts: by how much each was raised.

    Yields:
        What the append stores, and its rows.
    """
    used = {place: head.last - counts[place] for place, head in heads.items()}
    for append in appends:
        place, agent_id = append.place, append.key.agent_id
        head, position = heads[place], used[place]
        entries: list[Entry] = []
        rows: list[Row] = []
        for entry, row in zip(append.entries, append.rows, strict=True):
            position += 1
            rows.append((head.number, position, *row))
            entries.append(entry.placed(position, agent_id))
        used[place] = position
        yield LogSlice(entries, head.floor), rows


def append_known(
    connection: Executor, statements: Statements, codec: RowCodec, append: Append
) -> LogSlice:
    """Append one batch, some of whose ids may be known already.

    Raises:
        StorageConflictError: an id is known with another payload.
    """
    key = append.key
    head = raise_last(connection, statements, {append.place: 0})[append.place]
    known = _known(connection, statements, codec, head.number, append)
    position = head.last
    rows: list[Row] = []
    for entry, row in zip(append.entries, append.rows, strict=True):
        if entry.id not in known:
            position += 1
            rows.append((head.number, position, *row))
            known[entry.id] = entry.placed(position, key.agent_id)
        elif not same_payload(known[entry.id], entry):
            raise conflict(key, entry.id)
    if rows:
        last = {"chat": head.number, "value": position, "now": now()}
        statements.set_last.run(connection, last)
        statements.add_entry.run(connection, rows)
    return LogSlice([known[entry.id] for entry in append.entries], head.floor)


def raise_last(
    connection: Executor, statements: Statements, counts: Mapping[Place, int]
) -> dict[Place, Head]:
    """Lock chats and raise their last positions, making the chats that are new.

    Args:
        counts: by how much each is raised.

    Returns:
        Their heads afterwards.
    """
    heads: dict[Place, Head] = {}
    values: dict[str, Any] = {"now": now()}
    # In key order, so that two transactions never wait for each other.
    for places in _chunks(sorted(counts), HEAD_SIZES):
        for (user_id, session_id, agent_id, last), place in zip(HEAD_NAMES, places, strict=False):
            values[user_id], values[session_id], values[agent_id] = place
            values[last] = counts[place]
        for user_id, session_id, agent_id, *head in _raise(
            connection, statements, len(places), values
        ):
            heads[user_id, session_id, agent_id] = Head(*head)
    return heads


def _raise(
    connection: Executor, statements: Statements, count: int, values: Mapping[str, Any]
) -> Sequence[Row]:
    raising = statements.heads(count)
    if statements.returns_heads:
        return raising.rows(connection, values)
    raising.run(connection, values)
    return statements.read_heads(count).rows(connection, values)


def _known(
    connection: Executor, statements: Statements, codec: RowCodec, chat: int, append: Append
) -> dict[str, Entry]:
    known: dict[str, Entry] = {}
    ids = [row_id for row_id, _note, _body in append.rows]
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
    if not is_corrupted(entry):
        return entry
    location = entry.data["location"]
    raise CorruptedRecordError(
        f"what the chat of {key} holds under an id given cannot be read, so that it cannot be "
        f"told whether it is the same message; see {location}. Nothing was stored",
        key=key,
        location=location,
    )


def _chunks(keys: Sequence[Place], sizes: Sequence[int]) -> Iterator[Sequence[Place]]:
    start = 0
    while start < len(keys):
        size = next(size for size in sizes if size <= len(keys) - start)
        yield keys[start : start + size]
        start += size
