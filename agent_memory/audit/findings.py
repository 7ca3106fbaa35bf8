"""What is wrong with what a source or a store holds, and where."""

from __future__ import annotations

from typing import Any

import attrs

from agent_memory.errors import AgentMemoryError
from agent_memory.records import Entry, Note


class BadRecordError(AgentMemoryError):
    """A record of a source cannot be taken over; the text says where it is."""


@attrs.frozen
class Bad:
    """A record that cannot be taken over.

    Args:
        place: where it is: file and line, table and row, or chat and position.
        reason: what is wrong with it.
    """

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def is_unreadable(entry: Entry) -> bool:
    """Whether a store has made this note in place of an entry that it cannot read."""
    return isinstance(entry, Note) and entry.kind == "corrupted"


def finding_of(entry: Entry, place: str) -> Bad:
    """Say where an unreadable entry is and what is wrong with it.

    Args:
        entry: the note that a store made in its place.
        place: where it is, if the store does not say.
    """
    data: Any = entry.data if isinstance(entry, Note) else {}
    reason = data.get("error") or data.get("reason") or "it cannot be read"
    return Bad(str(data.get("location") or place), str(reason))
