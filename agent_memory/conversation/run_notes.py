"""The notes that a run leaves in the log beside its messages, and reading them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from agent_memory.keys import id_field, optional_id_field
from agent_memory.log import Entry, Note
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.validation import count_field

RUN: Final = "run"
"""The kind of the notes that runs leave."""


@attrs.frozen
class ThreadCounts:
    """How many runs and messages a thread has.

    Args:
        runs: contiguous blocks of one run id; neighbours without one are one block.
        messages: living messages.
        last_run: the run id of the newest block.

    Raises:
        InvalidRequestError: a number is negative, or something is of another type.
    """

    runs: int = attrs.field(default=0, validator=count_field)
    messages: int = attrs.field(default=0, validator=count_field)
    last_run: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str))
    )

    def plus(self, entries: Iterable[Entry]) -> ThreadCounts:
        """Return the counts with entries that follow those counted before."""
        runs, messages, last_run = self.runs, self.messages, self.last_run
        for entry in entries:
            if isinstance(entry, ConversationMessage):
                runs += not messages or entry.run_id != last_run
                messages += 1
                last_run = entry.run_id
        return ThreadCounts(runs, messages, last_run)


@attrs.frozen(kw_only=True)
class RunNote:
    """What a run notes in the log when it is saved: its cost, and how full the context was.

    Args:
        run_id: which run.
        usage: what it spent since its note before, if there was one.
        context_tokens: how full the model's context was at that moment.
        record_id: the id of the summary record that the run's view showed, None without one.
        floor: the chat's floor then; at another one the context was another.
        counts: of the thread up to this note; None if they were not known.
        position: the position that the note was expected to get. If it got another one, other
            entries were written before it that `counts` leave out, so that they are void.

    Raises:
        InvalidRequestError: a figure is negative, or something is of another type.
    """

    run_id: str = attrs.field(validator=id_field)
    usage: Usage = attrs.field(validator=attrs.validators.instance_of(Usage))
    context_tokens: int = attrs.field(validator=count_field)
    record_id: str | None = attrs.field(default=None, validator=optional_id_field)
    floor: int = attrs.field(default=0, validator=count_field)
    counts: ThreadCounts | None = None
    position: int = attrs.field(default=0, validator=count_field)

    def to_note(self) -> Note:
        """Return the note to be stored."""
        return Note(RUN, attrs.asdict(self))

    def counts_at(self, position: int | None, floor: int) -> ThreadCounts | None:
        """Return the thread's counts up to this note, or None if they are not known.

        Args:
            position: where the note is.
            floor: the chat's floor now.
        """
        # Of two runs that save at once, both expect the same position, and one gets another.
        return self.counts if (position, floor) == (self.position, self.floor) else None


def read_note(entry: object) -> RunNote | None:
    """Return what a run's note says; None for any other entry, or one that says it otherwise."""
    if not isinstance(entry, Note) or entry.kind != RUN:
        return None
    known = {field.name: entry.data[field.name] for field in _FIELDS if field.name in entry.data}
    try:
        known["usage"] = Usage(**known["usage"])
        if known.get("counts") is not None:
            known["counts"] = ThreadCounts(**known["counts"])
        return RunNote(**known)
    except (TypeError, ValueError, KeyError):
        return None  # an application may keep notes of that kind, too


_FIELDS: Final = attrs.fields(RunNote)


def run_notes(entries: Sequence[Entry]) -> Iterator[tuple[int, RunNote]]:
    """Yield the notes of runs among entries, the newest first, each with its index."""
    for index in reversed(range(len(entries))):
        note = read_note(entries[index])
        if note is not None:
            yield index, note


def counts_since_note(entries: Sequence[Entry], floor: int) -> ThreadCounts | None:
    """Count a thread from the newest note with counts on, without reading what lies before it.

    Args:
        entries: the newest entries, in order.
        floor: the chat's floor now.

    Returns:
        None if no note among them has counts.
    """
    for index, note in run_notes(entries):
        counts = note.counts_at(entries[index].position, floor)
        if counts is not None:
            return counts.plus(entries[index + 1 :])
    return None


def total_usage(entries: Sequence[Entry]) -> Usage:
    """Add up what the runs among these entries spent."""
    return sum((note.usage for _, note in run_notes(entries)), Usage())
