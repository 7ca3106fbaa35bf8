"""From any source of messages into a store: resumable, in bounded memory."""

from __future__ import annotations

import asyncio
from asyncio import Queue, Semaphore, TaskGroup
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final, cast

import attrs

from agent_memory.audit.chat_copy import has_hint, save_summaries, without_hint
from agent_memory.audit.chunks import BY_PLACE, Chunk
from agent_memory.audit.findings import BadRecordError, Finding, finding_of, is_unreadable
from agent_memory.audit.log_pages import ahead, ids_of, pages, peeked
from agent_memory.errors import (
    CorruptedRecordError,
    InvalidRequestError,
    MessageTooLargeError,
    StorageConflictError,
)
from agent_memory.log import Entry, LogSlice, Note, same_payload
from agent_memory.messages import ChatKey
from agent_memory.storage.base import ChatStorage

# Stores commit the saves of several chats together: one after the other, each short chat would
# pay for a commit of its own.
_CHATS_AT_ONCE: Final = 8
_ADVICE: Final = "(--keep-going passes over such records)"
# Errors about the message itself: a retry would fail again, so the others go on without it.
_REFUSALS: Final = (
    StorageConflictError,
    MessageTooLargeError,
    CorruptedRecordError,
    InvalidRequestError,
)


@attrs.define
class ImportCounts:
    """Import statistics.

    Args:
        chats: how many chats the source has.
        messages: how many messages were stored.
        notes: how many notes were stored.
        present: how many entries the target held already.
        bad: how many records could not be imported.
        summaries: how many summary records of the source are in the target now.
        summaries_left: how many are not; these views are summarized again when needed.
    """

    chats: int = 0
    messages: int = 0
    notes: int = 0
    present: int = 0
    bad: int = 0
    summaries: int = 0
    summaries_left: int = 0


class ChatImport:
    """Fills one chat of the target from the source's chunks.

    The target's log is read beside the source for as long as both hold the same entries, as
    after an interrupted run. Everything from the first difference on is given to the target,
    which stores no id twice.

    Args:
        target: the store to fill.
        key: which chat.
        moved: counts what was stored and what was present.
        on_bad: called for each entry that the target refuses; may raise.
    """

    def __init__(
        self,
        target: ChatStorage,
        key: ChatKey,
        moved: ImportCounts,
        on_bad: Callable[[Finding], None],
    ) -> None:
        self._target = target
        self._key = key
        self._moved = moved
        self._on_bad = on_bad
        self._walk: AsyncGenerator[LogSlice] | None = pages(target, key)
        self._following: deque[Entry] = deque()
        self._last = 0
        self._floor: int | None = None  # of the target, once something of it was read
        # Whether each entry so far has the position in the target that it has in the source.
        self._is_in_place = True
        # The source of a conversation that is not the one that the chat holds.
        self._refused: str | None = None

    async def add(self, chunk: Chunk) -> None:
        """Store what the target does not hold yet of a chunk, and the summaries of its chat."""
        fresh: list[int] = []
        for index, entry in enumerate(chunk.entries):
            if chunk.source == self._refused:
                return
            if is_unreadable(entry):
                self._on_bad(finding_of(entry, chunk.place(index)))
            elif self._walk is None or not await self._is_next(chunk, index):
                fresh.append(index)
        for batch in _batches(chunk, fresh):
            await self._store(chunk, batch)
        if chunk.summaries:
            # Records name positions. Where these differ in the target, a record would cover
            # other messages than its summary was made of, and hide them from the model.
            floor = self._floor if self._is_in_place else None
            stored = await save_summaries(self._target, self._key, chunk.summaries, floor)
            self._moved.summaries += stored
            self._moved.summaries_left += len(chunk.summaries) - stored

    async def close(self) -> None:
        """Stop reading the target."""
        if self._walk is not None:
            await self._walk.aclose()
            self._walk = None

    async def _is_next(self, chunk: Chunk, index: int) -> bool:
        """Whether this entry is next in the target; at the first difference, stop comparing."""
        entry, held = chunk.entries[index], await self._peek()
        if held is None:
            return False
        if held.id != entry.id:
            await self.close()
            newest = await self._target.read_log(*ids_of(self._key), last=1)
            self._last = newest.entries[-1].position or 0 if newest.entries else newest.floor
            return False
        self._following.popleft()
        if same_payload(without_hint(entry), without_hint(held)):
            self._moved.present += 1
            self._note_position(entry.position, held.position)
        else:
            self._refuse(chunk, index, StorageConflictError(entry.id, key=self._key))
        return True

    async def _peek(self) -> Entry | None:
        if not self._following and self._walk is not None:
            page = await anext(self._walk, None)
            if page is None:
                self._walk = None
                return None
            # The last position decides later whether an append stored something or found a
            # repeat.
            self._floor = page.floor
            self._last = page.entries[-1].position or 0
            self._following.extend(page.entries)
        return self._following[0]

    def _note_position(self, source: int | None, target: int | None) -> None:
        self._is_in_place = self._is_in_place and source == target

    async def _store(self, chunk: Chunk, indices: Sequence[int]) -> None:
        if not indices or chunk.source == self._refused:
            return
        entries = [chunk.entries[index] for index in indices]
        if not self._is_in_place:
            entries[0] = without_hint(entries[0])  # only the first of a batch can have one
        try:
            stored = await self._target.append(*ids_of(self._key), entries)
        except _REFUSALS as error:
            if len(indices) == 1:
                self._refuse(chunk, indices[0], error)
                return
            # A save is atomic: nothing was stored. Bisecting finds the refused entry in
            # log2(500) saves and stores the others in order.
            middle = len(indices) // 2
            await self._store(chunk, indices[:middle])
            await self._store(chunk, indices[middle:])
            return
        self._floor = stored.floor
        places = {entry.id: entry.position for entry in entries}
        for entry in stored.entries:
            self._count(entry)
            self._note_position(places[entry.id], entry.position)

    def _count(self, entry: Entry) -> None:
        position = entry.position or 0
        if position <= self._last:  # a repeat: the store answers with the entry it holds
            self._moved.present += 1
            return
        self._last = position
        if isinstance(entry, Note):
            self._moved.notes += 1
        else:
            self._moved.messages += 1

    def _refuse(self, chunk: Chunk, index: int, error: Exception) -> None:
        """Report an entry that the target refuses.

        Where ids are made of places, a known id with other content means that the chat holds
        another conversation: the rest of this one must not be mixed into it.
        """
        entry, reason = chunk.entries[index], str(error)
        is_conflict = isinstance(error, StorageConflictError)
        if is_conflict and entry.position is None and entry.id.startswith(BY_PLACE):
            self._refused = chunk.source
            reason = (
                f"the chat of {self._key} holds another conversation, in which this message "
                "differs; nothing from here on of this one is stored. Give it an id of its own, "
                "or import it with another --user or --agent"
            )
        elif is_conflict:  # the store's message says that nothing of the save was stored
            reason = (
                f"message id {entry.id!r} is already in the chat of {self._key} with another "
                "role, content or extra; this one is not stored. Give a changed message a new id"
            )
        self._on_bad(Finding(chunk.place(index), reason))


def _batches(chunk: Chunk, indices: Sequence[int]) -> Iterator[list[int]]:
    """Split a chunk before entries with a hint: then it is known whether positions differ."""
    batch: list[int] = []
    for index in indices:
        if batch and has_hint(chunk.entries[index]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Importer:
    """Imports the chunks of a source into a store, a few chats at a time.

    Running it again stores nothing twice, because message ids are compared. An interrupted
    import is resumed by running it again.

    Args:
        target: the store to fill.
        keep_going: whether to skip records that cannot be imported, instead of stopping at the
            first; what precedes it is stored in either case.
        on_bad: called for each such record.
        on_progress: called after each chunk with its number of entries and how far the source
            has been read.
    """

    def __init__(
        self,
        target: ChatStorage,
        *,
        keep_going: bool = False,
        on_bad: Callable[[Finding], object] = str,
        on_progress: Callable[[int, int], object] = max,
    ) -> None:
        self._target = target
        self._keep_going = keep_going
        self._on_bad = on_bad
        self._on_progress = on_progress
        self._free = Semaphore(_CHATS_AT_ONCE)
        self._filling: dict[ChatKey, asyncio.Task[None]] = {}
        self.moved = ImportCounts()

    async def move(self, stream: AsyncIterator[Chunk | Finding]) -> ImportCounts:
        """Store everything that the stream yields, and return the counts.

        Raises:
            BadRecordError: a record cannot be imported, and `keep_going` is False.
            StorageError: the target failed.
        """
        try:
            async with TaskGroup() as tasks, aclosing(ahead(stream)) as chunks:
                await self._dispatch(chunks, tasks)
        except BaseExceptionGroup as group:
            # A task group wraps errors; callers and the command line expect the first of them as
            # it is.
            first = _first_of(group)
            if isinstance(first, BadRecordError):
                first = BadRecordError(f"{first}; {self._before()}")
            raise first from None
        return self.moved

    def _before(self) -> str:
        moved = self.moved
        held = moved.messages + moved.notes + moved.present
        return f"stored before it: {held:,} {'entry' if held == 1 else 'entries'} {_ADVICE}"

    async def _dispatch(self, chunks: AsyncIterator[Chunk | Finding], tasks: TaskGroup) -> None:
        key: ChatKey | None = None
        queue: Queue[Chunk | None] = Queue()
        async for chunk in chunks:
            if isinstance(chunk, Finding):
                if not self._keep_going:  # the error promises that what precedes it is stored
                    await queue.put(None)
                    await asyncio.gather(*self._filling.values())
                self._bad(chunk)
                continue
            if chunk.key != key:
                await queue.put(None)
                key, queue = chunk.key, await self._begin(chunk.key, tasks)
            await queue.put(chunk)
        await queue.put(None)

    async def _begin(self, key: ChatKey, tasks: TaskGroup) -> Queue[Chunk | None]:
        """Start a task that stores a chat's chunks, and return its queue; None ends it."""
        if key in self._filling:  # the source returns to a chat: keep its order
            await self._filling[key]
        await self._free.acquire()
        queue: Queue[Chunk | None] = Queue(1)
        task = tasks.create_task(self._fill(key, queue))
        self._filling[key] = task
        task.add_done_callback(lambda _: self._filling.pop(key))
        return queue

    async def _fill(self, key: ChatKey, queue: Queue[Chunk | None]) -> None:
        chat_import = ChatImport(self._target, key, self.moved, self._bad)
        try:
            while (chunk := await queue.get()) is not None:
                await chat_import.add(chunk)
                self._on_progress(len(chunk.entries), chunk.done)
            self.moved.chats += 1
        finally:
            await chat_import.close()
            self._free.release()

    def _bad(self, bad: Finding) -> None:
        self.moved.bad += 1
        if not self._keep_going:
            raise BadRecordError(str(bad))
        self._on_bad(bad)


async def checked(stream: AsyncIterator[Chunk | Finding]) -> AsyncIterator[Chunk | Finding]:
    """Return the stream after checking its first item, before a target store is created.

    Raises:
        BadRecordError: the source begins with a record that cannot be imported.
    """
    first, whole = await peeked(stream)
    if isinstance(first, Finding):
        raise BadRecordError(f"{first}; nothing was stored {_ADVICE}")
    return whole


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return _first_of(cast("BaseExceptionGroup[BaseException]", first))
    return first
