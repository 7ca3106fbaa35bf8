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
    def position(self) -> int:
        """The first one."""
        return self.first

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


@attrs.define
class ChatReader:
    """Reads a chat's log up to its last position, holes in their places; a page is held at a time.

    Args:
        storage: where the chat is.
        info: which chat, and up to which position.
        after: only what has a position above it.
        floor: the chat's floor as it was read last.
    """

    storage: ChatStorage
    info: ChatInfo
    after: int = 0
    floor: int = attrs.field(init=False, default=0)

    async def items(self) -> AsyncIterator[LogItem]:
        """Yield what each position holds, in order."""
        key, last, self.floor = self.info.key, self.info.last, self.info.floor
        at = max(self.after, self.floor)
        async for part in pages(self.storage, key, after=self.after, last=last):
            self.floor = part.floor
            for entry in part.entries:
                position = entry.position or 0
                for hole in self._missing(at, min(position, last + 1)):
                    yield hole
                at = position
                if position > last:  # stored since the chat was listed
                    return
                if is_unreadable(entry):
                    bad = finding_of(entry, f"position {position}")
                    yield Hole(key, position, position, bad.location, bad.reason)
                else:
                    yield entry
        if at < last:
            # The log ends early: the entries are missing, or the chat was trimmed while it was
            # read. The floor decides which.
            rest = await self.storage.read_log(*ids_of(key), after=at, first=1)
            self.floor = rest.floor
            for hole in self._missing(at, last + 1):
                yield hole

    def _missing(self, at: int, position: int) -> Iterator[Hole]:
        """Yield a hole for the positions between two, if there are any above the floor."""
        first = max(at, self.floor) + 1
        if first < position:
            place = f"position {first}" if first == position - 1 else f"positions from {first}"
            reason = "the store holds nothing there"
            yield Hole(self.info.key, first, position - 1, place, reason)


def each_of(storage: ChatStorage, info: ChatInfo, *, after: int = 0) -> AsyncIterator[LogItem]:
    """Yield what a chat's log holds up to its last position, holes in their places."""
    return ChatReader(storage, info, after).items()


async def marks_of(storage: ChatStorage, info: ChatInfo) -> list[Note | Hole]:
    """Return a chat's notes and holes, in order."""
    items = each_of(storage, info)
    return [item async for item in items if not isinstance(item, ConversationMessage)]


def part_text(part: Part) -> str:
    """Return what a part of a message says: of a call its arguments, as JSON."""
    return part.arguments if part.kind == "call" else part.text


def hole_text(hole: Hole) -> str:
    """Return a hole as one visible line, without its positions."""
    return one_line(f"cannot be read: {hole.reason} ({hole.place})")


def note_text(note: Note) -> str:
    """Return what a note says as one visible line: its kind, and its data as JSON."""
    return one_line(f"{note.kind} {to_json(note.data)}")
