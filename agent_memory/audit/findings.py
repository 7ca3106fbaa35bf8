"""Findings: what is wrong in a source or a store, and where."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from agent_memory.errors import AgentMemoryError
from agent_memory.log import Entry, Note
from agent_memory.messages import ChatKey


class BadRecordError(AgentMemoryError):
    """A record of a source cannot be imported; the text says where it is."""


Check: TypeAlias = Literal["positions", "records", "medium", "exchanges", "summaries"]
"""What was looked at: positions without gaps; entries readable; what the store itself finds,
torn batches say; calls and results paired; summaries consistent with the raw log."""


@attrs.frozen
class Finding:
    """A problem in a source or a store.

    Args:
        location: where it is: file and line, table and row, or chat and position.
        reason: what is wrong.
        key: the chat, where the location does not name it.
        check: what was looked at.
    """

    location: str
    reason: str
    key: ChatKey | None = None
    check: Check = "records"

    def __str__(self) -> str:
        chat = "" if self.key is None else f"{self.key}: "
        return f"{chat}{self.location}: {self.reason}"


def is_unreadable(entry: Entry) -> bool:
    """Whether a store has made this note in place of an entry that it cannot read."""
    return isinstance(entry, Note) and entry.kind == "corrupted"


def finding_of(entry: Entry, place: str) -> Finding:
    """Return the finding for an unreadable entry.

    Args:
        entry: the note that a store made in its place.
        place: where it is, if the store does not say.
    """
    data: Any = entry.data if isinstance(entry, Note) else {}
    reason = data.get("error") or data.get("reason") or "it cannot be read"
    return Finding(str(data.get("location") or place), str(reason))
