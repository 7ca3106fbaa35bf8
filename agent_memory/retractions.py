"""Retractions: notes in the log that say which messages are no longer shown.

The log stays whole: who audits it sees the message, and the note that retracted it. Every
``fetch_chat`` hides it, and a summary that was made of it is void. A note retracts only what was
stored before it, so that whoever reads the newest entries knows of all retractions among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from agent_memory.messages import ConversationMessage
from agent_memory.records import Entry, Note, SummaryRecord

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
            if (entry.position or 0) > record.told:
                beyond.add(entry.id)
            continue
        retraction = retraction_of(entry)
        if retraction is None or (entry.position or 0) <= record.known:
            continue
        if retraction.everything or not retraction.ids <= beyond:
            return True
    return False
