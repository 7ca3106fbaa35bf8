"""The lines and chunks of chats that sources give, and the outputs that exports write to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import attrs

from agent_memory.audit.findings import Finding
from agent_memory.audit.log_pages import PAGE, PAGE_BYTES, Hole
from agent_memory.errors import InvalidRequestError
from agent_memory.log import Entry, SummaryRecord
from agent_memory.messages import ChatKey

BY_PLACE: Final = "imported-"
"""Prefix of ids made for messages without one; the rest is the place in the conversation."""


@attrs.frozen
class DefaultIds:
    """Ids for conversations in files that do not name a user or an agent.

    Args:
        user_id: the user.
        agent_id: the agent.
    """

    user_id: str
    agent_id: str


@attrs.frozen
class Chunk:
    """Some entries of one chat, in order; the chunks of a chat follow one another.

    Args:
        key: which chat.
        entries: messages and notes; their ``position`` is that in the source, None where the
            source has none.
        places: where each entry is in the source, such as its line; empty where the entries
            have positions.
        source: what the places are counted in, such as ``"chats.jsonl, line"``.
        summaries: the chat's records, oldest first, positions as in the source; only in the
            chunk that ends a chat.
        done: how far the source has been read by now, in its own unit (bytes, messages).
    """

    key: ChatKey
    entries: Sequence[Entry]
    places: Sequence[int] = ()
    source: str = ""
    summaries: Sequence[SummaryRecord] = ()
    done: int = 0

    def place(self, index: int) -> str:
        """Say where an entry is in the source."""
        if self.places:
            return f"{self.source} {self.places[index]}"
        return f"the chat of {self.key}, position {self.entries[index].position}"


@attrs.define
class ExportCounts:
    """Export statistics.

    Args:
        entries: how many messages and notes were written.
        bad: how many positions could not be read.
        left_out: how many parts of messages have no place in the format.
    """

    entries: int = 0
    bad: int = 0
    left_out: int = 0


@attrs.frozen
class ExportWriter:
    """Writes an export's output, and counts what it holds.

    Args:
        out: where to write; nothing of it is read.
        on_hole: called for positions that cannot be read; may raise.
        on_progress: called with the number of entries written.
        counts: the statistics so far.
    """

    out: BinaryIO
    on_hole: Callable[[Hole], object]
    on_progress: Callable[[int], object]
    counts: ExportCounts = attrs.field(factory=ExportCounts)

    def write(self, text: str, entries: int = 0, left_out: int = 0) -> None:
        """Write text that stands for this many entries of a chat."""
        self.out.write(text.encode())
        self.counts.entries += entries
        self.counts.left_out += left_out
        self.on_progress(entries)

    def tell(self, hole: Hole) -> None:
        """Count positions that cannot be read; what marks them is written next."""
        self.counts.bad += hole.count
        self.on_hole(hole)


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a file that is not blank.

    Args:
        source: what `number` counts, such as ``"chats.jsonl, line"``.
        number: from 1, blank lines counted.
        text: without line end and white space around.
        end: the byte after its line end.
    """

    source: str
    number: int
    text: bytes
    end: int

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.source} {self.number}"

    def holding(self, key: ChatKey, entry: Entry) -> SourceEntry:
        """Return the entry that this line holds."""
        return SourceEntry(key, entry, self.source, self.number, len(self.text), self.end)


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file; blank ones are passed over.

    Raises:
        OSError: the file cannot be read.
    """
    source, end = f"{path}, line", 0
    # Bytes, because text mode would also end lines at a lone carriage return.
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            end += len(line)
            text = line.removeprefix(_BYTE_ORDER_MARK).strip()
            # Blank lines are legal in JSON Lines, but they count: editors show the same numbers.
            if text:
                yield Line(source, number, text, end)


# Most kinds that are counted apart: a file may have a new one on each line.
_KINDS: Final = 100


@attrs.define
class Tally:
    """What the records of a source were read as, and what of them was left out.

    Args:
        read: how many messages were read as which form.
        left_out: how many records or fields of each kind were not taken over.
    """

    read: Counter[str] = attrs.field(factory=Counter[str])
    left_out: Counter[str] = attrs.field(factory=Counter[str])

    def leave(self, kind: str, count: int = 1) -> None:
        """Count what is not imported; kinds beyond the first hundred are counted together."""
        known = kind in self.left_out or len(self.left_out) < _KINDS
        self.left_out[kind if known else "anything else"] += count


class SourceEntry(NamedTuple):
    """A message or note of a source.

    Args:
        key: its chat.
        entry: the message or note.
        source: what `number` counts, such as ``"chats.jsonl, line"``.
        number: where it is in the source.
        size: about how many bytes it takes.
        done: how far the source has been read by then, in bytes.
    """

    key: ChatKey
    entry: Entry
    source: str
    number: int
    size: int = 0
    done: int = 0


class ChatEnd(NamedTuple):
    """The end of a chat in a source that holds summaries.

    Args:
        key: which chat.
        summaries: its records, oldest first.
        done: how far the source has been read by then, in bytes.
    """

    key: ChatKey
    summaries: Sequence[SummaryRecord]
    done: int


def parsed(text: str | bytes) -> Any:
    """Return what JSON text holds.

    Raises:
        InvalidRequestError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError too
        raise InvalidRequestError(f"it is not JSON: {error}") from error


def read_records(
    path: Path, read: Callable[[Line, Any], Iterable[SourceEntry | Finding]]
) -> Iterator[SourceEntry | Finding]:
    """Yield what a format's reader makes of each line of a JSON Lines file and its value.

    A line that is not JSON, or that the reader refuses with InvalidRequestError, is a finding
    with file and line; the lines after it are read.

    Raises:
        OSError: the file cannot be read.
    """
    for line in read_lines(path):
        try:
            yield from read(line, parsed(line.text))
        except InvalidRequestError as error:
            yield Finding(line.place, str(error))


def in_chunks(items: Iterator[SourceEntry | ChatEnd | Finding]) -> Iterator[Chunk | Finding]:
    """Group entries by chat into chunks of one save each, in bounded memory.

    Chats may be interleaved. What precedes a bad record is yielded before it.
    """
    held: dict[tuple[ChatKey, str], list[SourceEntry]] = {}
    count = size = 0

    def flush() -> Iterator[Chunk]:
        nonlocal count, size
        for (key, source), group in held.items():
            entries = [item.entry for item in group]
            numbers = [item.number for item in group]
            yield Chunk(key, entries, numbers, source, (), group[-1].done)
        held.clear()
        count = size = 0

    for item in items:
        if not isinstance(item, SourceEntry):
            yield from flush()
            if isinstance(item, Finding):
                yield item
            elif item.summaries:
                yield Chunk(item.key, (), summaries=item.summaries, done=item.done)
            continue
        held.setdefault((item.key, item.source), []).append(item)
        count, size = count + 1, size + item.size
        if count >= PAGE or size > PAGE_BYTES:
            yield from flush()
    yield from flush()


def time_in(value: object) -> datetime:
    """Return the moment that a time stamp in ISO 8601 names.

    Raises:
        InvalidRequestError: it is not one, or has no time zone.
    """
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidRequestError(f"its timestamp {value!r} is not one in ISO 8601") from None
    if moment.utcoffset() is None:
        raise InvalidRequestError(f"its timestamp {value!r} has no time zone")
    return moment
