"""Reading long logs a page at a time: messages, notes, and the positions that hold neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypeVar

import attrs

from agent_memory.audit.escaping import one_line
from agent_memory.audit.findings import finding_of, is_unreadable
from agent_memory.log import ChatInfo, Entry, LogSlice, Note
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import Part
from agent_memory.providers.part import to_json
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import encode_entry

T = TypeVar("T")

PAGE: Final = 500
"""Most entries on a page, and most messages in one save."""
PAGE_BYTES: Final = 4_000_000
"""About how large a page may be; a single larger message is a page of its own."""
_FIRST_PAGE: Final = 50
_SAMPLE: Final = 5


def ids_of(key: ChatKey) -> tuple[str, str, str]:
    """Return the ids that a store's calls take."""
    return key.user_id, key.session_id, key.agent_id


async def pages(
    storage: ChatStorage, key: ChatKey, *, after: int = 0, last: int | None = None
) -> AsyncGenerator[LogSlice]:
    """Yield a chat's log, messages and notes, a page at a time.

    Args:
        storage: where the chat is.
        key: which chat.
        after: only entries with a position above it.
        last: the position of the chat's newest entry, if known; saves one read.
    """
    # Nothing is known of the chat's messages yet: one of them may be megabytes long.
    size = _FIRST_PAGE
    while last is None or after < last:
        part = await storage.read_log(*ids_of(key), after=after, first=size)
        if not part.entries:
            return
        yield part
        after = part.entries[-1].position or after
        size = next_size(part.entries)


def next_size(entries: Sequence[Entry]) -> int:
    """Return how many entries to read next, given those of the page before."""
    # Encoding every entry to measure it would double the cost of reading a long chat.
    step = max(1, len(entries) // _SAMPLE)
    sample = [entries[i] for i in range(0, len(entries), step)]
    mean = sum([len(encode_entry(entry)) for entry in sample]) // len(sample)
    return max(1, min(PAGE, PAGE_BYTES // (mean + 1)))


async def peeked(stream: AsyncIterator[T]) -> tuple[T | None, AsyncIterator[T]]:
    """Return the first item of a stream, None if there is none, and the whole stream."""
    first = await anext(stream, None)

    async def whole() -> AsyncIterator[T]:
        if first is not None:
            yield first
        async for item in stream:
            yield item

    return first, whole()


async def in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield the items of a blocking iterator, each computed in a worker thread."""
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


async def ahead(stream: AsyncIterator[T]) -> AsyncGenerator[T]:
    """Yield a stream's items, prefetching the next while the last one is processed."""

    async def following() -> T | None:
        return await anext(stream, None)

    # One item in advance: reading the source overlaps with writing the target, and no more than
    # two items are held.
    task = asyncio.create_task(following())
    try:
        while (item := await task) is not None:
            task = asyncio.create_task(following())
            yield item
    finally:
        task.cancel()
        # The consumer has left, so that an error of the prefetched item concerns nobody.
        with suppress(asyncio.CancelledError, Exception):
            await task


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class Hole:
    """Consecutive positions of a log whose entries are missing or cannot be read.

    Args:
        key: the chat.
        first, last: the positions.
        place: where in the store, as the store says it.
        reason: what is wrong.
    """

    key: ChatKey
    first: int
    last: int
    place: str
    reason: str

    @property
    def count(self) -> int:
        """How many positions."""
        return self.last - self.first + 1

    @property
    def positions(self) -> str:
        """The positions as people write them: ``#400``, or ``#400 to #402``."""
        return f"#{self.first}" if self.count == 1 else f"#{self.first} to #{self.last}"

    @property
    def timestamp(self) -> datetime:
        """The earliest moment: when chats are merged, a hole follows the entry before it."""
        return _EPOCH

    def __str__(self) -> str:
        return f"{self.key}: {self.positions} cannot be read: {self.place}: {self.reason}"


LogItem: TypeAlias = Entry | Hole
"""What a position of a log holds, as an auditor reads it."""


@attrs.frozen
class LogPage:
    """A part of a log.

    Args:
        items: what its positions hold, in order.
        floor: the chat's floor when it was read.
    """

    items: Sequence[LogItem]
    floor: int


async def log_of(
    storage: ChatStorage, info: ChatInfo, *, after: int = 0
) -> AsyncIterator[LogPage]:
    """Yield a chat's log up to its last position, a page at a time, holes in their places.

    Args:
        storage: where the chat is.
        info: which chat, and up to which position.
        after: only what has a position above it.
    """
    reader = _GapFinder(info.key, max(after, info.floor), info.last)
    async for part in pages(storage, info.key, after=after, last=info.last):
        yield LogPage(list(reader.items(part)), part.floor)
    if reader.at < info.last:
        # The log ends early: the entries are missing, or the chat was trimmed while it was
        # read. The floor decides which.
        rest = await storage.read_log(*ids_of(info.key), after=reader.at, first=1)
        yield LogPage(list(reader.missing_before(info.last + 1, rest.floor)), rest.floor)


async def each_of(
    storage: ChatStorage, info: ChatInfo, *, after: int = 0
) -> AsyncIterator[LogItem]:
    """Yield what :func:`log_of` does, one by one."""
    async for page in log_of(storage, info, after=after):
        for item in page.items:
            yield item


async def marks_of(storage: ChatStorage, key: ChatKey) -> list[Note | Hole]:
    """Return a chat's notes and holes, in order."""
    infos = storage.list_chats(key.user_id, key.session_id)
    return [
        item
        async for info in infos
        if info.key == key
        async for item in each_of(storage, info)
        if not isinstance(item, ConversationMessage)
    ]


def first_of(mark: Note | Hole) -> int:
    """Return the position of a note, or the first one of a hole."""
    return mark.first if isinstance(mark, Hole) else mark.position or 0


@attrs.define
class _GapFinder:
    """Finds the positions that a log's pages skip.

    Args:
        key: the chat.
        at: the position read last.
        last: the last one to be read.
    """

    key: ChatKey
    at: int
    last: int

    def items(self, part: LogSlice) -> Iterator[LogItem]:
        for entry in part.entries:
            position = entry.position or 0
            yield from self.missing_before(min(position, self.last + 1), part.floor)
            self.at = position
            if position > self.last:  # stored since the chat was listed
                return
            if is_unreadable(entry):
                bad = finding_of(entry, f"position {position}")
                yield Hole(self.key, position, position, bad.location, bad.reason)
            else:
                yield entry

    def missing_before(self, position: int, floor: int) -> Iterator[Hole]:
        first = max(self.at, floor) + 1
        if first < position:
            place = f"position {first}" if first == position - 1 else f"positions from {first}"
            yield Hole(self.key, first, position - 1, place, "the store holds nothing there")


def part_text(part: Part) -> str:
    """Return what a part of a message says: of a call its arguments, as JSON."""
    if part.kind != "call":
        return part.text
    return part.payload if isinstance(part.payload, str) else to_json(part.payload)


def hole_text(hole: Hole) -> str:
    """Return a hole as one visible line, without its positions."""
    return one_line(f"cannot be read: {hole.reason} ({hole.place})")


def note_text(note: Note) -> str:
    """Return what a note says as one visible line: its kind, and its data as JSON."""
    return one_line(f"{note.kind} {to_json(note.data)}")
