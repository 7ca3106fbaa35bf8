"""Appending: a group of saves in one transaction, or each in one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from agent_memory.errors import CorruptedRecordError
from agent_memory.log import Entry, LogSlice, is_corrupted
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.append_plan import Outcome, PendingSave, append_plan
from agent_memory.storage.sql.entries import EntryRow, RowCodec
from agent_memory.storage.sql.errors import Failure, TransactionFailedError, kind_of
from agent_memory.storage.sql.statements import (
    AnyConnection,
    ChatRow,
    KeyValues,
    Row,
    Statements,
    now,
)
from agent_memory.storage.sql.transactor import Transactor

MAX_CHARACTERS: Final = 4_000_000
"""Where a group ends: a transaction should not grow without bound, and callers wait for it."""

_UNAVAILABLE: Final = (Failure.LOST, Failure.BUSY, Failure.CONTENDED)

Save: TypeAlias = PendingSave[EntryRow]


@attrs.frozen
class GroupAppender:
    """Commits groups of saves for one store.

    Args:
        statements: for engines that take a few of them in a transaction.
        codec: decodes what is known already.
        in_one_statement: appends a group in one statement, where the engine can.
    """

    statements: Statements
    codec: RowCodec
    in_one_statement: Callable[[AnyConnection, Sequence[Save]], list[LogSlice]] | None

    def commit(self, transactor: Transactor, saves: Sequence[Save]) -> Sequence[Outcome]:
        """Store a group in one transaction and return the outcome of each save.

        When a row of the group is refused, for example because its id is known, each save is
        tried again in a transaction of its own, so that one save's failure fails no other.

        Raises:
            TransactionFailedError: the database is not available, for any of them.
        """
        try:
            return self._store(transactor, saves)
        except TransactionFailedError as error:
            if kind_of(error.error) in _UNAVAILABLE:
                raise
        return [self._store_alone(transactor, save) for save in saves]

    def _store(self, transactor: Transactor, saves: Sequence[Save]) -> list[LogSlice]:
        in_one_statement = self.in_one_statement
        if in_one_statement is not None and sum(save.size for save in saves) <= MAX_CHARACTERS:
            return transactor.single(lambda connection: in_one_statement(connection, saves))
        return transactor.transact(
            lambda connection: append_group(connection, self.statements, saves),
            repeatable=True,
        )

    def _store_alone(self, transactor: Transactor, save: Save) -> Outcome:
        try:
            return transactor.transact(
                lambda connection: append_with_lookup(
                    connection, self.statements, self.codec, save
                ),
                repeatable=True,
            )
        except TransactionFailedError as error:
            return error.translated(save.key)
        except Exception as error:  # noqa: BLE001 - this save fails alone
            return error


def append_group(
    connection: AnyConnection, statements: Statements, saves: Sequence[Save]
) -> list[LogSlice]:
    """Append several saves, in the expectation that no id is known.

    There is no look-up: the unique index refuses a known id, and with it the whole transaction;
    :meth:`GroupAppender.commit` then stores each save with :func:`append_with_lookup`.

    Returns:
        What each save stored, in the order given.
    """
    group = SaveGroup(statements, saves)
    chats = statements.advance_last(connection, group.counts)
    rows: list[Row] = []
    stored: list[LogSlice] = []
    for part, part_rows in group.placed(chats):
        stored.append(part)
        rows += part_rows
    statements.add_entries.insert(connection, rows)
    return stored


class SaveGroup:
    """Saves of one transaction, and how many entries each of their chats gets.

    Attributes:
        saves: each with its key as the engine keeps it.
        counts: the number of new entries of each chat.
    """

    def __init__(self, statements: Statements, saves: Sequence[Save]) -> None:
        self.saves = [(save, statements.key_tuple(save.key)) for save in saves]
        self.counts: dict[KeyValues, int] = {}
        for save, chat in self.saves:
            self.counts[chat] = self.counts.get(chat, 0) + len(save.entries)

    def placed(self, chats: Mapping[KeyValues, ChatRow]) -> Iterator[tuple[LogSlice, list[Row]]]:
        """Give each save its positions, in the order of the group.

        Args:
            chats: the chats' rows, after their last positions were raised.

        Yields:
            What the save stores, and its rows.
        """
        used = {chat: row.last - self.counts[chat] for chat, row in chats.items()}
        for save, chat in self.saves:
            row, position, agent_id = chats[chat], used[chat], save.key.agent_id
            entries: list[Entry] = []
            rows: list[Row] = []
            for entry, encoded in zip(save.entries, save.encoded, strict=True):
                position += 1
                rows.append((row.number, position, *encoded))
                entries.append(entry.placed(position, agent_id))
            used[chat] = position
            yield LogSlice(entries, row.floor), rows


def append_with_lookup(
    connection: AnyConnection, statements: Statements, codec: RowCodec, save: Save
) -> LogSlice:
    """Append one save, after looking up which of its ids are known.

    Raises:
        StorageConflictError: an id is known with another payload.
    """
    chat = statements.key_tuple(save.key)
    row = statements.advance_last(connection, {chat: 0})[chat]
    known = _known(connection, statements, codec, row.number, save)
    plan = append_plan(save.key, row.last, row.floor, [save], lambda entry: known.get(entry.id))
    (outcome,) = plan.outcomes
    if isinstance(outcome, Exception):
        raise outcome
    if plan.last > row.last:
        last = {"chat": row.number, "value": plan.last, "now": now()}
        statements.set_last.run(connection, last)
        rows: list[Row] = [(row.number, entry.position, *encoded) for entry, encoded in plan.added]
        statements.add_entries.insert(connection, rows)
    return outcome


def _known(
    connection: AnyConnection, statements: Statements, codec: RowCodec, chat: int, save: Save
) -> dict[str, Entry]:
    known: dict[str, Entry] = {}
    ids = [row_id for row_id, _note, _body in save.encoded]
    for row_id, position, body in statements.known(connection, chat, ids):
        entry = codec.decode(body, chat, position, save.key.agent_id)
        known[statements.id_text(row_id)] = _readable(save.key, entry)
    return known


def _readable(key: ChatKey, entry: Entry) -> Entry:
    if not is_corrupted(entry):
        return entry
    location = entry.data["location"]
    raise CorruptedRecordError(
        f"what the chat of {key} holds under an id given cannot be read, so that it cannot be "
        f"compared with the message given; see {location}. Nothing was stored",
        key=key,
        location=location,
    )
