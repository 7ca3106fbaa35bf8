"""Whether a store is what it promises to be: :func:`verify`; and that nothing changed: digests.

The canonical log that :func:`digest_of` hashes is UTF-8 text. Its first line is ``agent-memory
log 1``; its second the chat, as the JSON list of user, session and agent id. A line follows for
each position from the one above the floor to the last: the entry as
:func:`~agent_memory.storage.codec.encode_entry` writes it, or ``null`` for one that cannot be
read. Each line ends with a line feed. The digest is the SHA-256 of that. ``docs/audit.md`` says
the same for those who compute it without this library.

Positions are not written: a log has no gaps, so that floor and order imply them. A chat that was
trimmed and then copied to another store begins at position 1 there, and its digest is the same
(unless it holds a retraction, whose hint in positions is not copied then).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import attrs

from agent_memory.audit.findings import Check, Finding, finding_of, is_unreadable
from agent_memory.audit.log_pages import Hole, each_of, pages
from agent_memory.errors import CorruptedRecordError, InvalidRequestError
from agent_memory.log import ChatInfo, Entry, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import encode_entry
from agent_memory.turns import facts_of


@attrs.define
class CallWatch:
    """Finds calls without a result and results without a call, message by message.

    Memory is bounded: it holds only the calls that still wait for a result.
    """

    _waiting: dict[str, tuple[int, bool]] = attrs.field(factory=dict[str, tuple[int, bool]])

    def look(self, message: ConversationMessage) -> Iterator[str]:
        """Process the next message; yield what is wrong with it."""
        facts = facts_of(message)
        for call_id in facts.results:
            if call_id is None:
                yield "a tool's result that names no call"
            elif self._waiting.pop(call_id, None) is None:
                yield f"a tool's result for {call_id!r}, a call that does not wait for one"
        goes_on = facts.has_results or message.role is ParticipantRole.ASSISTANT
        if not goes_on or facts.answers_user:
            # A conversation that has moved on is unlikely to answer earlier calls. A late
            # result is still accepted, so that interim and final results both pair.
            self._waiting = {call: (at, True) for call, (at, _) in self._waiting.items()}
        for call_id in facts.waits:
            self._waiting[call_id] = message.position or 0, False

    def unanswered(self) -> Iterator[tuple[int, str]]:
        """Yield position and id of each call that has no result and will get none.

        A call at the end of the chat may still be in progress and is not among them.
        """
        for call_id, (position, is_passed) in self._waiting.items():
            if is_passed:
                yield position, call_id


@runtime_checkable
class _Checks(Protocol):
    """A store that can check its own medium, such as files for torn batches."""

    def verify(
        self, user_id: str | None, session_id: str | None, agent_id: str | None
    ) -> AsyncIterator[Any]: ...


@attrs.define
class VerifyCounts:
    """How much was read."""

    chats: int = 0
    entries: int = 0
    summaries: int = 0


async def verify(
    storage: ChatStorage,
    user_id: str | None = None,
    session_id: str | None = None,
    agent_id: str | None = None,
    *,
    verified: VerifyCounts | None = None,
    on_progress: Callable[[int], object] = abs,
) -> AsyncIterator[Finding]:
    """Read everything and yield what is wrong. Nothing is changed; memory is bounded.

    Args:
        storage: the raw store.
        user_id, session_id, agent_id: of which user, session, agent or chat; all by
            default.
        verified: counts what was looked at.
        on_progress: called after each page with the number of entries read.
    """
    done = verified or VerifyCounts()
    has_own = isinstance(storage, _Checks)
    if isinstance(storage, _Checks):
        async for problem in storage.verify(user_id, session_id, agent_id):
            yield Finding(problem.location, problem.reason, problem.key, "medium")
    async for info in storage.list_chats(user_id, session_id):
        if agent_id not in (None, info.key.agent_id):
            continue
        done.chats += 1
        async for finding in _verify_chat(storage, info, done, on_progress):
            # A store with its own check has reported unreadable entries with file, line and
            # byte.
            if finding.check != "records" or not has_own:  # already reported by the store
                yield finding


async def _verify_chat(
    storage: ChatStorage,
    info: ChatInfo,
    done: VerifyCounts,
    on_progress: Callable[[int], object],
) -> AsyncIterator[Finding]:
    records, unreadable = await _records(storage, info.key)
    if unreadable is not None:
        yield unreadable
    done.summaries += len(records)
    chat = _ChatChecks(info.key, info.floor, records)
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
        # list_summaries skips records it cannot read; only load_summary reports a damaged one.
        await store.load_summary(key)
    except CorruptedRecordError as error:
        where = error.location or "its newest summary record"
        return await store.list_summaries(key), Finding(where, str(error), key, "summaries")
    return await store.list_summaries(key), None


class _ChatChecks:
    """The checks of one chat, entry by entry."""

    def __init__(self, key: ChatKey, floor: int, records: list[SummaryRecord]) -> None:
        self._key = key
        self._floor = self._at = floor
        self._calls = CallWatch()
        self._records = records
        # The log is read once and never held: keep only the entries that records refer to,
        # their last messages and their heads.
        self._wanted = {record.position for record in records}
        self._wanted |= {m.position or 0 for record in records for m in record.head}
        self._kept: dict[int, Entry] = {}

    def trimmed(self, floor: int) -> None:
        """Note the floor, which another process may raise while the log is read."""
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
            yield attrs.evolve(finding_of(entry, f"position {position}"), key=self._key)
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
                yield Finding(f"summary {record.id}", reason, self._key, "summaries")
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
        return Finding(f"position {position}", reason, self._key, check)


_HEADER = b"agent-memory log 1\n"


@attrs.frozen
class ChatDigest:
    """A digest, and of what.

    Args:
        key: which chat.
        floor: the position below the first one.
        last: the last position.
        sha256: of the canonical log between them, as 64 hexadecimal digits.
        holes: how many of the positions cannot be read.
    """

    key: ChatKey
    floor: int
    last: int
    sha256: str
    holes: int = 0


async def digest_of(
    storage: ChatStorage, info: ChatInfo, *, through: int | None = None
) -> ChatDigest:
    """Read a chat's log and return its digest; memory is bounded.

    Args:
        storage: where the chat is.
        info: which chat, and its floor and last position.
        through: the last position to take, so that an earlier digest is computed again after
            more was appended; None, or a position beyond the last, takes everything.

    Raises:
        InvalidRequestError: the chat was trimmed beyond that position.
    """
    last = info.last if through is None else min(through, info.last)
    if last <= info.floor:
        raise InvalidRequestError(
            f"the chat of {info.key} holds nothing up to position {last} any more: what is up to "
            f"{info.floor} was trimmed"
        )
    digest = hashlib.sha256(_HEADER)
    key = info.key
    # Without the chat's ids two chats with equal entries could be exchanged unnoticed.
    chat = json.dumps([key.user_id, key.session_id, key.agent_id], ensure_ascii=False)
    digest.update(chat.encode() + b"\n")
    holes = 0
    async for item in each_of(storage, attrs.evolve(info, last=last)):
        if isinstance(item, Hole):
            holes += item.count
            # One line for each position, so that the digest shows how many entries are lost.
            for _ in range(item.count):
                digest.update(b"null\n")
        else:
            digest.update(encode_entry(item).encode() + b"\n")
    return ChatDigest(info.key, info.floor, last, digest.hexdigest(), holes)
