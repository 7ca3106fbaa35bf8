"""Counting a thread's runs and messages as it grows."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from agent_memory.conversation.notes import read_note
from agent_memory.messages import ConversationMessage
from agent_memory.records import Entry


@attrs.define
class ThreadCounts:
    """How many runs and messages a thread has.

    Args:
        runs: contiguous blocks of one run id; neighbours without one are one block.
        messages: living messages.
        last_run: the run id of the newest block.
    """

    runs: int = 0
    messages: int = 0
    last_run: str | None = None

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries that follow those counted before."""
        for entry in entries:
            if isinstance(entry, ConversationMessage):
                if not self.messages or entry.run_id != self.last_run:
                    self.runs += 1
                self.messages += 1
                self.last_run = entry.run_id

    @classmethod
    def since_note(cls, entries: Iterable[Entry], floor: int) -> ThreadCounts | None:
        """Count a thread from its newest note on, without reading what lies before it.

        Args:
            entries: the newest entries, in order.
            floor: the chat's floor now.

        Returns:
            None if no note among them tells, or messages were removed since.
        """
        listed = list(entries)
        for index in range(len(listed) - 1, -1, -1):
            note = read_note(listed[index])
            if note is not None and note.runs is not None and note.messages is not None:
                if note.floor != floor:
                    return None
                counts = cls(note.runs, note.messages, note.run_id)
                counts.add(listed[index + 1 :])
                return counts
        return None
