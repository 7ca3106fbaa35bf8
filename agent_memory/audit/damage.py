"""Entries that a store could not read, and says so."""

from __future__ import annotations

from typing import Any

from agent_memory.audit.chunks import Bad
from agent_memory.records import Entry, Note


def is_unreadable(entry: Entry) -> bool:
    """Whether a store has made this note in place of an entry that it cannot read."""
    return isinstance(entry, Note) and entry.kind == "corrupted"


def damage_in(entry: Entry, place: str) -> Bad:
    """Say where an unreadable entry is and what is wrong with it.

    Args:
        entry: the note that a store made in its place.
        place: where it is, if the store does not say.
    """
    data: Any = entry.data if isinstance(entry, Note) else {}
    reason = data.get("error") or data.get("reason") or "it cannot be read"
    return Bad(str(data.get("location") or place), str(reason))
