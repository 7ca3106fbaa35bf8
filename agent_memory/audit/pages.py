"""Reading long logs a page at a time, the page's size fitted to the size of the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.codec import encode_entry

T = TypeVar("T")

PAGE: Final = 500
"""Most entries on a page, and most messages in one save."""
PAGE_BYTES: Final = 4_000_000
"""About how large a page may be; a single larger message is a page of its own."""
_FIRST_PAGE: Final = 50
_SAMPLE: Final = 5


async def pages(
    storage: ChatStorage, key: ChatKey, *, after: int = 0, last: int | None = None
) -> AsyncGenerator[LogSlice]:
    """Yield a chat's log, messages and notes, a page at a time.

    Args:
        storage: where the chat is.
        key: which chat.
        after: only entries with a position above it.
        last: the position of the chat's newest entry, where that is known: spares a read.
    """
    size = _FIRST_PAGE
    await storage._ready()
    while last is None or after < last:
        part = await storage._read(key, after=after, first=size)
        if not part.entries:
            return
        yield part
        after = part.entries[-1].position or after
        size = next_size(part.entries)


def next_size(entries: Sequence[Entry]) -> int:
    """Return how many entries to read next, given those of the page before."""
    step = max(1, len(entries) // _SAMPLE)
    sample = [entries[i] for i in range(0, len(entries), step)]
    mean = sum([len(encode_entry(entry)) for entry in sample]) // len(sample)
    return max(1, min(PAGE, PAGE_BYTES // (mean + 1)))


async def in_thread(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield what a plain iterator gives, each item made in a worker thread."""
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item


async def ahead(stream: AsyncIterator[T]) -> AsyncGenerator[T]:
    """Yield what a stream gives, the next item being made while the last one is worked on."""

    async def following() -> T | None:
        return await anext(stream, None)

    task = asyncio.create_task(following())
    try:
        while (item := await task) is not None:
            task = asyncio.create_task(following())
            yield item
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # nobody wants that item any more
            await task
