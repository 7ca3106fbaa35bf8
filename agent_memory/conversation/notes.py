"""What a run leaves in the log beside its messages, and what is read from it later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from agent_memory.messages import Usage
from agent_memory.records import Note

RUN: Final = "run"
"""The kind of the notes that runs leave."""


@attrs.frozen(kw_only=True)
class RunNote:
    """The account of one save of a run.

    Args:
        run_id: which run.
        usage: what it spent since its note before, if there was one.
        context_tokens: how full the model's context was at that moment.
        runs: how many runs the thread had; None if that was not known.
        messages: how many messages the thread had; None if that was not known.
        floor: the chat's floor then; at another one `runs` and `messages` are void.
    """

    run_id: str
    usage: Usage
    context_tokens: int
    runs: int | None = None
    messages: int | None = None
    floor: int = 0

    def to_note(self) -> Note:
        """Return the note to be stored."""
        return Note(
            RUN,
            {
                "run_id": self.run_id,
                "usage": attrs.asdict(self.usage),
                "context_tokens": self.context_tokens,
                "runs": self.runs,
                "messages": self.messages,
                "floor": self.floor,
            },
        )


def read_note(entry: object) -> RunNote | None:
    """Return what a run's note says; None for any other entry, or one that says it otherwise."""
    if not isinstance(entry, Note) or entry.kind != RUN:
        return None
    fields: dict[str, Any] = {
        field.name: entry.data.get(field.name) for field in attrs.fields(RunNote)
    }
    try:
        fields["usage"] = Usage(**fields["usage"])
        return RunNote(**fields)
    except (TypeError, ValueError):
        return None


def total_usage(entries: Iterable[object]) -> Usage:
    """Add up what the runs among these entries spent."""
    notes = map(read_note, entries)
    return sum((note.usage for note in notes if note is not None), Usage())
