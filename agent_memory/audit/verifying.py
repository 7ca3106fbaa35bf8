"""Whether a store is what it promises to be: what is wrong, and where."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import attrs

from agent_memory.audit.damage import damage_in, is_unreadable
from agent_memory.audit.pages import pages
from agent_memory.audit.pairing import CallWatch
from agent_memory.errors import CorruptedRecordError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import ChatInfo, Entry, SummaryRecord
from agent_memory.storage.base import ChatStorage

Check: TypeAlias = Literal["positions", "records", "medium", "exchanges", "summaries"]
"""What was looked at: positions without gaps; entries readable; what the store itself finds,
torn batches say; calls and results paired; summaries consistent with the raw log."""


@attrs.frozen
class Finding:
    """Something that is not as it should be.

    Args:
        key: the chat, where it is known.
        check: what was looked at.
        location: where it is.
        reason: what is wrong.
    """

    key: ChatKey | None
    check: Check
    location: str
    reason: str

    def __str__(self) -> str:
        whose = "" if self.key is None else f"{self.key}: "
        return f"{whose}{self.location}: {self.reason}"


class _Problem(Protocol):
    @property
    def key(self) -> ChatKey | None: ...
    @property
    def location(self) -> str: ...
    @property
    def reason(self) -> str: ...


@runtime_checkable
class _Checks(Protocol):
    """A store that can look through its medium itself."""

    def verify(
        self, user_id: str | None, session_id: str | None, agent_id: str | None
    ) -> AsyncIterator[_Problem]: ...


@attrs.define
class Verified:
    """How much was looked at."""

    chats: int = 0
    entries: int = 0
    summaries: int = 0


async def verify(
    storage: ChatStorage,
    user_id: str | None = None,
    session_id: str | None = None,
    agent_id: str | None = None,
    *,
    verified: Verified | None = None,
    on_progress: Callable[[int], object] = abs,
) -> AsyncIterator[Finding]:
    """Read everything and yield what is wrong. Nothing is changed; memory is bounded.

    Args:
        storage: the raw store.
        user_id, session_id, agent_id: of which user, session or chat; all by default.
        verified: counts what was looked at.
        on_progress: told how many entries were read, piece by piece.
    """
    done = verified or Verified()
    has_own = isinstance(storage, _Checks)
    if isinstance(storage, _Checks):
        async for problem in storage.verify(user_id, session_id, agent_id):
            yield Finding(problem.key, "medium", problem.location, problem.reason)
    async for info in storage.list_chats(user_id, session_id):
        if agent_id not in (None, info.key.agent_id):
            continue
        done.chats += 1
        async for finding in _verify_chat(storage, info, done, on_progress):
            if finding.check != "records" or not has_own:  # it has told of these already
                yield finding


async def _verify_chat(
    storage: ChatStorage,
    info: ChatInfo,
    done: Verified,
    on_progress: Callable[[int], object],
) -> AsyncIterator[Finding]:
    records, unreadable = await _records(storage, info.key)
    if unreadable is not None:
        yield unreadable
    done.summaries += len(records)
    chat = _Chat(info.key, info.floor, records)
    async for part in pages(storage, info.key, last=info.last):
        chat.trimmed(part.floor)
        for entry in part.entries:
            for finding in chat.look(entry):
                yield finding
        done.entries += len(part.entries)
        on_progress(len(part.entries))
    for finding in chat.end(info.last):
        yield finding


async def _records(
    storage: ChatStorage, key: ChatKey
) -> tuple[list[SummaryRecord], Finding | None]:
    store = storage.summaries()
    if store is None:
        return [], None
    try:
        await store.load_summary(key)
    except CorruptedRecordError as error:
        where = error.location or "its newest summary record"
        return await store.list_summaries(key), Finding(key, "summaries", where, str(error))
    return await store.list_summaries(key), None


class _Chat:
    """What is known of a chat while its log is read."""

    def __init__(self, key: ChatKey, floor: int, records: list[SummaryRecord]) -> None:
        self._key = key
        self._floor = self._at = floor
        self._calls = CallWatch()
        self._records = records
        # What records speak of is kept on the way: their last messages, and their heads.
        self._wanted = {record.position for record in records}
        self._wanted |= {m.position or 0 for record in records for m in record.head}
        self._kept: dict[int, Entry] = {}

    def trimmed(self, floor: int) -> None:
        """Take note of the floor, which others may have raised meanwhile."""
        self._floor = floor
        self._at = max(self._at, floor)

    def look(self, entry: Entry) -> Iterator[Finding]:
        position = entry.position or 0
        if position != self._at + 1:
            reason = f"follows position {self._at}: the log has a gap or repeats itself"
            yield self._finding("positions", position, reason)
        self._at = position
        if position in self._wanted:
            self._kept[position] = entry
        if is_unreadable(entry):
            bad = damage_in(entry, f"position {position}")
            yield Finding(self._key, "records", bad.place, bad.reason)
        elif isinstance(entry, ConversationMessage):
            for reason in self._calls.look(entry):
                yield self._finding("exchanges", position, reason)

    def end(self, last: int) -> Iterator[Finding]:
        if self._at < last:
            reason = f"the log ends here, and the store says at {last}"
            yield self._finding("positions", self._at, reason)
        for position, call_id in self._calls.unanswered():
            yield self._finding("exchanges", position, f"no result follows the call {call_id!r}")
        before: str | None = None
        for record in self._records:
            for reason in self._wrong(record, before):
                yield Finding(self._key, "summaries", f"summary {record.id}", reason)
            before = record.id

    def _wrong(self, record: SummaryRecord, before: str | None) -> Iterator[str]:
        if not record.fits(self._floor, self._at):
            yield (
                f"it was made at floor {record.floor} and reaches position {record.position}; "
                f"the log lives from {self._floor + 1} to {self._at}"
            )
            return
        end = self._kept.get(record.position)
        if end is not None and end.id != record.message_id:
            yield f"the entry at position {record.position} is not the one it was made up to"
        covered = record.covered
        span = covered.last - covered.first + 1
        if not self._floor < covered.first <= covered.last <= record.position and covered.count:
            yield f"it covers {covered.first} to {covered.last}, which is not in its reach"
        elif covered.count > max(0, span):
            yield f"it covers {covered.count} messages, where {span} are"
        for message in record.head:
            if self._kept.get(message.position or 0) != message:
                yield f"its head differs from the log at position {message.position}"
        if before is not None and record.replaces != before:
            yield f"it replaces {record.replaces!r}, and the record before it is {before!r}"

    def _finding(self, check: Check, position: int, reason: str) -> Finding:
        return Finding(self._key, check, f"position {position}", reason)
