"""What sources of messages give: lines, records, and the chunks of chats made of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Self

import attrs

from agent_memory.audit.findings import Finding
from agent_memory.audit.log_pages import PAGE, PAGE_BYTES
from agent_memory.errors import InvalidRequestError
from agent_memory.log import Entry, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage

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


@attrs.frozen
class ExportPiece:
    """A part of an export's output.

    Args:
        text: to be written as it is.
        entries: how many of the chat's entries it stands for.
        left_out: how many of their parts have no place in the format.
    """

    text: str
    entries: int = 0
    left_out: int = 0


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@attrs.frozen
class Line:
    """A line that is not blank.

    Args:
        number: from 1, blank lines counted.
        text: without line end and white space around.
        start: the byte it begins at.
        end: the byte after its line end.
    """

    number: int
    text: bytes
    start: int
    end: int


class LineReader:
    """Iterates over the lines of a file; blank ones are passed over."""

    def __init__(self, path: Path) -> None:
        # Bytes, because text mode would also end lines at a lone carriage return.
        self._file: BinaryIO = path.open("rb")
        self._at = 0
        self.number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        for line in self._file:
            self.number += 1
            start, self._at = self._at, self._at + len(line)
            text = line.removeprefix(_BYTE_ORDER_MARK).strip()
            # Blank lines are legal in JSON Lines, but they count: editors show the same numbers.
            if text:
                return Line(self.number, text, start, self._at)
        raise StopIteration


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


class SourceMessage(NamedTuple):
    """A message of a source.

    Args:
        key: its chat.
        message: the message.
        source: what `number` counts, such as ``"chats.jsonl, line"``.
        number: where the message is in the source.
        size: about how many bytes it takes.
        done: how far the source has been read by then, in bytes.
    """

    key: ChatKey
    message: ConversationMessage
    source: str
    number: int
    size: int = 0
    done: int = 0


class JsonRecord(NamedTuple):
    """A line of a JSON Lines file, parsed.

    Args:
        source: what `number` counts, such as ``"chats.jsonl, line"``.
        number: of the line, from 1.
        plain: what it holds.
        size: its length in bytes.
        end: the byte after its line end.
    """

    source: str
    number: int
    plain: Any
    size: int
    end: int

    def holding(self, key: ChatKey, message: ConversationMessage) -> SourceMessage:
        """Return the message that this line holds."""
        return SourceMessage(key, message, self.source, self.number, self.size, self.end)


def parsed(text: bytes) -> Any:
    """Return what JSON text holds.

    Raises:
        InvalidRequestError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError too
        raise InvalidRequestError(f"it is not JSON: {error}") from error


def read_records(
    path: Path, read: Callable[[JsonRecord], Iterable[SourceMessage | Finding]]
) -> Iterator[SourceMessage | Finding]:
    """Yield what a format's reader makes of each line of a JSON Lines file.

    A line that is not JSON, or that the reader refuses with InvalidRequestError, is a finding
    with file and line; the lines after it are read.

    Raises:
        OSError: the file cannot be read.
    """
    source = f"{path}, line"
    with LineReader(path) as reader:
        for line in reader:
            try:
                plain = parsed(line.text)
                yield from read(JsonRecord(source, line.number, plain, len(line.text), line.end))
            except InvalidRequestError as error:
                yield Finding(f"{source} {line.number}", str(error))


def in_chunks(items: Iterator[SourceMessage | Finding]) -> Iterator[Chunk | Finding]:
    """Group messages by chat into chunks of one save each, in bounded memory.

    Chats may be interleaved. What precedes a bad record is yielded before it.
    """
    held: dict[tuple[ChatKey, str], list[SourceMessage]] = {}
    count = size = 0

    def flush() -> Iterator[Chunk]:
        for (key, source), group in held.items():
            messages = [item.message for item in group]
            numbers = [item.number for item in group]
            yield Chunk(key, messages, numbers, source, (), group[-1].done)
        held.clear()

    for item in items:
        if isinstance(item, Finding):
            yield from flush()
            count = size = 0
            yield item
            continue
        held.setdefault((item.key, item.source), []).append(item)
        count, size = count + 1, size + item.size
        if count >= PAGE or size > PAGE_BYTES:
            yield from flush()
            count = size = 0
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
