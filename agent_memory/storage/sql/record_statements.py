"""The statements about summary records."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sqlalchemy import delete, select

from agent_memory.storage.sql.compiling import Insertion, Statement, StatementSet


class RecordStatements(StatementSet):
    """The statements about summary records; see :class:`StatementSet`."""

    @cached_property
    def add(self) -> Insertion:
        """Insert records."""
        return self._adding(self.tables.records)

    @cached_property
    def newest(self) -> Statement:
        """Find the newest record of `chat`: number, id."""
        records = self.tables.records.c
        finding = select(records.number, records.id).where(self._in_chat(records))
        return self._compile(finding.order_by(records.number.desc()).limit(1))

    @cached_property
    def load(self) -> Statement:
        """Read the newest record of a chat: chat, number, body."""
        newest = self._records().order_by(self.tables.records.c.number.desc())
        return self._compile(newest.limit(1))

    @cached_property
    def list(self) -> Statement:
        """Read all records of a chat: chat, number, body."""
        return self._compile(self._records().order_by(self.tables.records.c.number))

    @cached_property
    def drop(self) -> Statement:
        """Delete the records of `chat`."""
        records = self.tables.records
        return self._compile(delete(records).where(self._in_chat(records.c)))

    def _records(self) -> Any:
        chats, records = self.tables.chats, self.tables.records
        joined = chats.join(records, records.c.chat == chats.c.number)
        columns = records.c.chat, records.c.number, records.c.body
        return select(*columns).select_from(joined).where(*self._key_is())
