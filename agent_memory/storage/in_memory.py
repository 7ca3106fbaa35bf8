"""The reference store: chats in this process's memory."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import attrs

from agent_memory.keys import ChatKey
from agent_memory.log import ChatInfo, Entry, LogSlice, SummaryRecord
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.append_plan import PendingSave, append_plan
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.hooks import StoredSummaries
from agent_memory.storage.summaries import SummaryStore


@attrs.define(eq=False)
class _Chat:
    """One chat: ``entries[i]`` has the position ``floor + 1 + i``."""

    floor: int = 0
    entries: list[Entry] = attrs.field(factory=list[Entry])
    by_id: dict[str, Entry] = attrs.field(factory=dict[str, Entry])
    records: list[SummaryRecord] = attrs.field(factory=list[SummaryRecord])
    created_at: datetime = attrs.field(factory=lambda: datetime.now(UTC))
    updated_at: datetime = attrs.field(factory=lambda: datetime.now(UTC))

    @property
    def last(self) -> int:
        return self.floor + len(self.entries)

    def append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        save = PendingSave(key, entries, entries)
        plan = append_plan(key, self.last, self.floor, [save], self.known)
        outcome = plan.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        for placed, _ in plan.additions[0]:
            self.entries.append(placed)
            self.by_id[placed.id] = placed
        self.updated_at = datetime.now(UTC)
        return outcome

    def known(self, entry: Entry) -> Entry | None:
        return self.by_id.get(entry.id)

    def forget(self, keep: int) -> int:
        cut, left = len(self.entries), keep
        while cut and left:
            cut -= 1
            left -= isinstance(self.entries[cut], ConversationMessage)
        gone = self.entries[: len(self.entries) if keep == 0 else cut]
        if gone:
            del self.entries[: len(gone)]
            self.floor += len(gone)
            self.records.clear()
            self.updated_at = datetime.now(UTC)
        for entry in gone:
            del self.by_id[entry.id]
        return sum(isinstance(entry, ConversationMessage) for entry in gone)


class InMemoryChatStorage(ChatStorage):
    """Chats in this process's memory: for tests, short-lived agents, and as the reference.

    Durability: none; everything is gone with the process. Concurrency: any tasks, threads and
    event loops of this process.
    """

    _append_is_cancel_safe = True  # it never suspends

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chats: dict[ChatKey, _Chat] = {}

    def __repr__(self) -> str:
        return f"InMemoryChatStorage({len(self._chats)} chats)"

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        with self._lock:
            chat = self._chats.get(key)
            if chat is None:
                chat = self._chats[key] = _Chat()
            return chat.append(key, entries)

    async def _read(
        self, key: ChatKey, *, after: int = 0, first: int | None = None, last: int | None = None
    ) -> LogSlice:
        with self._lock:
            chat = self._chats.get(key)
            if chat is None:
                return LogSlice([])
            start = max(0, after - chat.floor)
            stop = len(chat.entries)
            if first is not None:
                stop = min(stop, start + first)
            if last is not None:
                start = max(start, stop - last)
            return LogSlice(chat.entries[start:stop], chat.floor)

    async def _forget(self, key: ChatKey, keep: int) -> int:
        with self._lock:
            chat = self._chats.get(key)
            return 0 if chat is None else chat.forget(keep)

    async def _list(self, user_id: str | None, session_id: str | None) -> AsyncIterator[ChatInfo]:
        with self._lock:
            infos = [
                ChatInfo(key, chat.floor, chat.last, chat.created_at, chat.updated_at)
                for key, chat in self._chats.items()
                if chat.entries
                and user_id in (None, key.user_id)
                and session_id in (None, key.session_id)
            ]
        for info in sorted(infos, key=lambda info: info.key):
            yield info

    async def _purge(self, older_than: timedelta) -> int:
        before = datetime.now(UTC) - older_than
        with self._lock:
            dead = [
                key
                for key, chat in self._chats.items()
                if not chat.entries and chat.updated_at <= before
            ]
            for key in dead:
                del self._chats[key]
        return len(dead)

    async def _close(self) -> None:
        with self._lock:
            self._chats.clear()

    def summaries(self) -> SummaryStore:
        """Return the records, which live beside the chats."""
        return StoredSummaries(self._put_record, self._records, self._drop_records)

    async def _put_record(self, key: ChatKey, record: SummaryRecord, replaces: str | None) -> bool:
        await self._ready()
        with self._lock:
            chat = self._chats.get(key)
            if chat is None or not record.fits(chat.floor, chat.last):
                return False
            newest = chat.records[-1].id if chat.records else None
            if newest == replaces and newest != record.id:
                chat.records.append(record)
                return True
            return newest == record.id

    async def _records(self, key: ChatKey, *, newest_only: bool) -> list[SummaryRecord]:
        await self._ready()
        with self._lock:
            chat = self._chats.get(key)
            records = [] if chat is None else chat.records
            return records[-1:] if newest_only else list(records)

    async def _drop_records(self, key: ChatKey) -> int:
        await self._ready()
        with self._lock:
            chat = self._chats.get(key)
            if chat is None:
                return 0
            gone = len(chat.records)
            chat.records.clear()
            return gone
