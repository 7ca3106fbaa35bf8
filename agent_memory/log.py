"""Slices of a chat's log, and its notes, retractions and summary records.

A *retraction* is a note that says which messages are no longer shown. The log stays whole: an
audit sees the message, and the note that retracted it. Every ``fetch_chat`` hides it, and a
summary made of it no longer counts. A note retracts only what was stored before it, so that the
newest entries of a log hold every retraction of messages among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeGuard
from warnings import warn

import attrs

from agent_memory.keys import ChatKey, id_field, new_id
from agent_memory.messages import (
    ConversationMessage,
    Usage,
    frozen_mapping,
    utc_timestamp,
)

__all__ = ["ChatInfo", "Covered", "Entry", "LogSlice", "Note", "SummaryRecord", "same_payload"]


def _data(value: object) -> Mapping[str, Any]:
    return frozen_mapping(value, "data")


@attrs.frozen
class Note:
    """An entry of the log that is not a message: never given to a model, never fetched.

    Args:
        kind: what it says. ``"retracted"`` (message ids that a view no longer shows), ``"run"``
            (what a run cost), ``"fork"`` (which thread it began as), ``"corrupted"`` (made by a
            store in place of an entry that it cannot read; never written).
        data: the note's content, in the same domain as a message's.
        id: unique among the entries of the chat; by default a new UUIDv7.
        timestamp: an aware datetime; by default now.

    Attributes:
        position: the place in the chat's log, shared with messages; set by the store.
        agent_id: whose chat it was stored in; set by the store.
    """

    kind: str = attrs.field(validator=id_field)
    data: Mapping[str, Any] = attrs.field(factory=dict[str, Any], converter=_data)
    id: str = attrs.field(factory=new_id, validator=id_field, kw_only=True)
    timestamp: datetime = attrs.field(
        factory=lambda: datetime.now(UTC), converter=utc_timestamp, kw_only=True
    )
    position: int | None = attrs.field(default=None, init=False, eq=False)
    agent_id: str | None = attrs.field(default=None, init=False, eq=False)

    def __hash__(self) -> int:
        return hash(self.id)

    def same_payload(self, other: Note) -> bool:
        """Whether kind and data are equal: what idempotency compares."""
        return self.kind == other.kind and self.data == other.data

    def placed(self, position: int, agent_id: str) -> Note:
        """Return this note with its place in a log; for stores."""
        note = Note(self.kind, self.data, id=self.id, timestamp=self.timestamp)
        object.__setattr__(note, "position", position)
        object.__setattr__(note, "agent_id", agent_id)
        return note


Entry: TypeAlias = ConversationMessage | Note
"""One entry of a chat's log."""

CORRUPTED: Final = "corrupted"
"""The kind of the notes that stand for entries that a store cannot read."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def corrupted_note(position: int, agent_id: str, location: str, problem: str) -> Note:
    """Return the note that a store hands out in place of an entry that it cannot read.

    Nothing in it depends on when it is made: two reads of one damaged entry give equal notes.
    Its data are ``location`` and ``error``, both texts.

    Args:
        position: the entry's place in the log.
        agent_id: whose chat it is.
        location: where the damage is: file, line and byte, or table and row.
        problem: what is wrong there.
    """
    data = {"location": location, "error": problem}
    note = Note(CORRUPTED, data, id=f"{CORRUPTED}-{position}", timestamp=_EPOCH)
    return note.placed(position, agent_id)


def is_corrupted(entry: Entry) -> TypeGuard[Note]:
    """Whether an entry is a note that stands for one that a store cannot read."""
    return isinstance(entry, Note) and entry.kind == CORRUPTED


def same_payload(one: Entry, other: Entry) -> bool:
    """Whether two entries under one id are the same entry, saved twice."""
    if isinstance(one, ConversationMessage):
        return isinstance(other, ConversationMessage) and one.same_payload(other)
    return isinstance(other, Note) and one.same_payload(other)


@attrs.frozen
class LogSlice:
    """A part of one chat's log, as a store answers it.

    Args:
        entries: messages and notes with their positions, in order of position (after an
            append: in the order they were given).
        floor: every position up to it has been trimmed or deleted. It only rises, until the
            chat is purged.
    """

    entries: Sequence[Entry]
    floor: int = 0

    @property
    def messages(self) -> list[ConversationMessage]:
        """The entries that are messages."""
        return [entry for entry in self.entries if isinstance(entry, ConversationMessage)]


@attrs.frozen
class ChatInfo:
    """What a store tells of a chat without reading it.

    Args:
        key: which chat.
        entries: how many entries (messages and, rarely, notes) live in it.
        floor: the position below the oldest living entry.
        last: the position of the newest entry.
        created_at: when its first entry was stored, by the store's clock; None if unknown.
        updated_at: when its newest entry was stored, by the store's clock; None if unknown.
    """

    key: ChatKey
    floor: int
    last: int
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def entries(self) -> int:
        """How many entries (messages and, rarely, notes) live in the chat."""
        return self.last - self.floor


@attrs.frozen
class Covered:
    """Which raw messages a summary stands for.

    Args:
        first: the lowest position covered.
        last: the highest position covered.
        count: how many messages, which is less than the span when some are kept in the head.
    """

    first: int
    last: int
    count: int

    def plus(self, other: Covered) -> Covered:
        """Return what a summary stands for that covers both."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        return Covered(first, last, self.count + other.count)


@attrs.frozen(kw_only=True)
class SummaryRecord:
    """One installed summary: enough to restore the view without a model and explain it.

    A record is never needed: without it the view is rebuilt from the raw log.

    Args:
        summary: the messages that stand for what is covered; may be empty (a sliding window).
        head: the raw messages shown before the summary (system, pinned, an open question),
            with their positions.
        position: the summary and head reach up to it; what follows is read from the log.
        message_id: the id of the entry at `position`, to notice that the log is another one.
        floor: the chat's floor when the summary was made; at another floor the record is void.
        known_through: the newest position that was known when the summary was made. What was
            retracted up to it is not in the summary; what is retracted beyond it makes the
            record void. Given and stored as ``known``.
        summarized_through: the newest position that the summary's text may mention, though the
            message may be shown as well; what the summarizer itself kept lies beyond it. Given
            and stored as ``told``.
        covered: which messages the summary stands for, with those of its predecessors.
        replaces: the id of the record it was made from, None for the first.
        summarizer: the name of what made it.
        reason: why it was made, such as ``"trigger_at"``.
        messages_before: messages in the view before, head excluded.
        messages_after: the same afterwards.
        tokens_before: estimated tokens in the view before, head excluded.
        tokens_after: the same afterwards.
        usage: what making it cost, where that is known.
        id: unique; by default a new UUIDv7.
        created_at: when it was made; by default now.
    """

    summary: tuple[ConversationMessage, ...]
    head: tuple[ConversationMessage, ...]
    position: int
    message_id: str
    floor: int
    covered: Covered
    known_through: int = attrs.field(default=0, alias="known")
    summarized_through: int = attrs.field(default=0, alias="told")
    replaces: str | None = None
    summarizer: str = ""
    reason: str = ""
    messages_before: int = 0
    messages_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage | None = None
    id: str = attrs.field(factory=new_id, validator=id_field)
    created_at: datetime = attrs.field(factory=lambda: datetime.now(UTC), converter=utc_timestamp)

    @property
    def known(self) -> int:
        """Deprecated: `known_through`."""
        warn("SummaryRecord.known is known_through now", DeprecationWarning, stacklevel=2)
        return self.known_through

    @property
    def told(self) -> int:
        """Deprecated: `summarized_through`."""
        warn("SummaryRecord.told is summarized_through now", DeprecationWarning, stacklevel=2)
        return self.summarized_through

    def fits(self, floor: int, last: int) -> bool:
        """Whether the record belongs to a log that lives from `floor` + 1 to `last`."""
        return self.floor == floor < self.position <= last


RETRACTED: Final = "retracted"
"""The kind of these notes. Their data: ``ids``, a list of message ids, or ``everything``, true
for all that the log holds before the note."""


@attrs.frozen
class Retraction:
    """What a note retracts.

    Args:
        ids: the messages it names.
        everything: whether it retracts all that was stored before it.
        hidden: the first and last position of a stretch in which nothing is shown any more: no
            more than a hint, for those who look for the newest message that is.
    """

    ids: frozenset[str] = frozenset()
    everything: bool = False
    hidden: tuple[int, int] | None = None

    def to_note(self, **fields: Any) -> Note:
        """Return the note to be stored; `fields` are further ones of its data."""
        data: dict[str, Any] = {"ids": sorted(self.ids), **fields}
        if self.everything:
            data["everything"] = True
        if self.hidden is not None:
            data["hidden"] = list(self.hidden)
        return Note(RETRACTED, data)


def retraction_of(entry: Entry) -> Retraction | None:
    """Return what an entry retracts; None for any that is no such note, or a malformed one."""
    if not isinstance(entry, Note) or entry.kind != RETRACTED:
        return None
    ids = _strings(entry.data.get("ids", []))
    if ids is None:
        return None
    hidden: tuple[int, int] | None = None
    match entry.data.get("hidden"):
        case [int(first), int(last)]:
            hidden = (first, last)
        case _:
            pass
    return Retraction(ids, entry.data.get("everything") is True, hidden)


def _strings(value: Any) -> frozenset[str] | None:
    held: Any = value
    if not isinstance(value, list) or not all(isinstance(item, str) for item in held):
        return None
    return frozenset(held)


def retracted_ids(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the ids of those messages among the entries that later ones of these retract."""
    before: set[str] = set()
    gone: set[str] = set()
    for entry in entries:
        if isinstance(entry, ConversationMessage):
            before.add(entry.id)
            continue
        retraction = retraction_of(entry)
        if retraction is not None:
            gone |= before if retraction.everything else before & retraction.ids
    return frozenset(gone)


def visible(entries: Sequence[Entry]) -> list[ConversationMessage]:
    """Return the messages among the entries that no later one of these retracts.

    Args:
        entries: a stretch of the log that reaches to its end.
    """
    messages = [entry for entry in entries if isinstance(entry, ConversationMessage)]
    if len(messages) == len(entries):
        return messages
    gone = retracted_ids(entries)
    return [message for message in messages if message.id not in gone] if gone else messages


def since_cleared(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries from the newest note on that retracts everything before it."""
    for index in range(len(entries) - 1, -1, -1):
        retraction = retraction_of(entries[index])
        if retraction is not None and retraction.everything:
            return entries[index:]
    return entries


def is_outdated(record: SummaryRecord, following: Iterable[Entry]) -> bool:
    """Whether something that a summary record stands for, or shows, was retracted since.

    Args:
        record: the record.
        following: the entries of the log beyond the record's position.
    """
    beyond: set[str] = set()
    for entry in following:
        if isinstance(entry, ConversationMessage):
            if (entry.position or 0) > record.summarized_through:
                beyond.add(entry.id)
            continue
        retraction = retraction_of(entry)
        if retraction is None or (entry.position or 0) <= record.known_through:
            continue
        if retraction.everything or not retraction.ids <= beyond:
            return True
    return False
