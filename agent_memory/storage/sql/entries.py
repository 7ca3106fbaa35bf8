"""Encoding entries as rows of the entries table, and decoding them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs

from agent_memory.errors import CorruptedRecordError, MessageTooLargeError
from agent_memory.log import Entry, LogSlice, Note, corrupted_note
from agent_memory.messages import ChatKey
from agent_memory.storage.codec import decode_entry, decode_plain, encode_entry
from agent_memory.storage.sql.statements import Row, Statements

_log = logging.getLogger(__name__)
_WARNED_AT_MOST: Final = 1_000  # rows remembered, so that each is warned of once


EntryRow: TypeAlias = tuple[Any, int, str]
"""An entry as the table has it behind chat and position: id, whether it is a note, body."""


@attrs.frozen
class RowCodec:
    """Turns entries into rows and back for one store.

    Args:
        statements: for the form of ids, and the table's name.
        max_bytes: the largest body the engine takes, in bytes of UTF-8 as it is sent.
    """

    statements: Statements
    max_bytes: int
    _warned: set[str] = attrs.field(factory=set[str], init=False)

    def encode(self, key: ChatKey, entries: Sequence[Entry]) -> list[EntryRow]:
        """Encode entries.

        Raises:
            MessageTooLargeError: an entry is larger than the engine takes.
        """
        return [self._row(key, entry) for entry in entries]

    def _row(self, key: ChatKey, entry: Entry) -> EntryRow:
        body = encode_entry(entry)
        # At most four bytes a character, and MySQL's escapes double some of them.
        if len(body) * 8 > self.max_bytes:
            self._check_size(key, entry, body)
        return self.statements.id_value(entry.id), int(isinstance(entry, Note)), body

    def _check_size(self, key: ChatKey, entry: Entry, body: str) -> None:
        size = self._bytes_sent(body)
        if size > self.max_bytes:
            raise MessageTooLargeError(
                f"message {entry.id!r} of the chat of {key} takes {size} bytes as it is stored; "
                f"this database takes at most {self.max_bytes}. Nothing was stored",
                key=key,
            )

    def _bytes_sent(self, body: str) -> int:
        size = len(body.encode())
        if self.statements.family == "mysql":
            size += sum(body.count(escaped) for escaped in "\"'\\\n\r\0\x1a")
        return size

    def log_slice(self, rows: Sequence[Row], key: ChatKey) -> LogSlice:
        """Decode what :meth:`ChatOperations.read` read."""
        floor = rows[0][1] if rows else 0
        entries = [
            self.decode(body, chat, position, key.agent_id)
            for chat, _floor, position, body in rows
            if position is not None
        ]
        return LogSlice(entries, floor)

    def session_slices(
        self, rows: Sequence[Row], user_id: str, session_id: str
    ) -> dict[ChatKey, LogSlice]:
        """Decode what :meth:`ChatOperations.read_session` read."""
        entries: dict[str, list[Entry]] = {}
        floors: dict[str, int] = {}
        for agent, chat, floor, position, body in rows:
            agent_id = self.statements.id_text(agent)
            floors[agent_id] = floor
            entry = self.decode(body, chat, position, agent_id)
            entries.setdefault(agent_id, []).append(entry)
        return {
            ChatKey(user_id, session_id, agent_id): LogSlice(log, floors[agent_id])
            for agent_id, log in entries.items()
        }

    def decode(self, body: str | bytes, chat: int, position: int, agent_id: str) -> Entry:
        """Decode a body; one that cannot be read becomes a note that says where it is."""
        plain = decode_plain(body, position, agent_id)
        return plain or self._decode_carefully(body, chat, position, agent_id)

    def _decode_carefully(
        self, body: str | bytes, chat: int, position: int, agent_id: str
    ) -> Entry:
        location = self.location(chat, position)
        try:
            return decode_entry(body, position, agent_id, location=location)
        except CorruptedRecordError as error:
            self._warn(location, error)
            return corrupted_note(position, agent_id, location, str(error))

    def location(self, chat: int, position: int) -> str:
        """Say where an entry is."""
        return f"table {self.statements.tables.entries.fullname}, chat {chat}, position {position}"

    def _warn(self, location: str, error: CorruptedRecordError) -> None:
        if location not in self._warned and len(self._warned) < _WARNED_AT_MOST:
            self._warned.add(location)
            _log.warning("unreadable entry: %s", error)
