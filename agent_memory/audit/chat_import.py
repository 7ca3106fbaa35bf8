"""From any source of messages into a store: resumable, in bounded memory."""

from __future__ import annotations

import asyncio
from asyncio import Queue, Semaphore, TaskGroup
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final, cast

import attrs

from agent_memory.audit.chunks import BY_PLACE, Chunk
from agent_memory.audit.findings import BadRecordError, Finding, finding_of, is_unreadable
from agent_memory.audit.log_pages import ahead, ids_of, pages, peeked
from agent_memory.audit.summary_copy import has_hint, save_summaries, without_hint
from agent_memory.errors import (
    CorruptedRecordError,
    InvalidRequestError,
    MessageTooLargeError,
    StorageConflictError,
)
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, Note, same_payload
from agent_memory.storage.base import ChatStorage

_CHATS_AT_ONCE: Final = 8
"""Short chats share a store's commits when some are stored at the same time."""
_ADVICE: Final = "(--keep-going passes over such records)"
_REFUSALS: Final = (
    StorageConflictError,
    MessageTooLargeError,
    CorruptedRecordError,
    InvalidRequestError,
)
"""What a store says of a message that it will never take."""


@attrs.define
class ImportCounts:
    """What a move came to.

    Args:
        chats: how many chats the source has.
        messages: how many messages were stored.
        notes: how many notes were stored.
        present: how many entries the target held already.
        bad: how many could not be taken over.
        summaries: how many summary records of the source are in the target now.
        summaries_left: how many are not; their views are made anew when they are needed.
    """

    chats: int = 0
    messages: int = 0
    notes: int = 0
    present: int = 0
    bad: int = 0
    summaries: int = 0
    summaries_left: int = 0


class ChatImport:
    """One chat of the target, filled from the source's chunks.

    The target's log is read beside the source for as long as both hold the same entries, as
    after an interrupted run. Everything from the first difference on is given to the target,
    which stores no id twice.

    Args:
        target: the store to fill.
        key: which chat.
        moved: counts what was stored and what was there.
        on_bad: told of each entry that the target never takes; may raise.
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
        self._floor = 0
        self._is_in_place = True
        """Whether each entry so far has the position in the target that it has in the source."""
        self._refused: str | None = None
        """The source of a conversation that is not the one that the chat holds."""

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
            # Records name positions: where these differ in the target, or were trimmed, a
            # record would speak of other messages. The view is made anew there.
            floor = self._floor if self._is_in_place else None
            stored = await save_summaries(self._target, self._key, chunk.summaries, floor)
            self._moved.summaries += stored
            self._moved.summaries_left += len(chunk.summaries) - stored

    async def close(self) -> None:
        """Let go of what was held."""
        if self._walk is not None:
            await self._walk.aclose()
            self._walk = None

    async def _is_next(self, chunk: Chunk, index: int) -> bool:
        """Whether the target's log goes on with this entry; at a difference its reading ends."""
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
            entries[0] = without_hint(entries[0])  # only a batch's first has one
        try:
            stored = await self._target.append(*ids_of(self._key), entries)
        except _REFUSALS as error:
            if len(indices) == 1:
                self._refuse(chunk, indices[0], error)
                return
            # Nothing was stored. Halves find the one that is refused, and store the others.
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
        if position <= self._last:  # the store knew its id
            self._moved.present += 1
            return
        self._last = position
        if isinstance(entry, Note):
            self._moved.notes += 1
        else:
            self._moved.messages += 1

    def _refuse(self, chunk: Chunk, index: int, error: Exception) -> None:
        """Tell of an entry that the target never takes.

        Where ids are only places, an id that is there with other content means that the chat
        holds another conversation: nothing more of this one may get into it.
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
        elif is_conflict:  # the store's own words are of a whole save, of which there were others
            reason = (
                f"message id {entry.id!r} is already in the chat of {self._key} with another "
                "role, content or extra; this one is not stored. Give a changed message a new id"
            )
        self._on_bad(Finding(chunk.place(index), reason))


def _batches(chunk: Chunk, indices: Sequence[int]) -> Iterator[list[int]]:
    """Part a chunk before entries with a hint: by then it is known whether positions moved."""
    batch: list[int] = []
    for index in indices:
        if batch and has_hint(chunk.entries[index]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Importer:
    """Moves what a source gives into a store.

    Doing it again stores nothing twice: message ids tell what is there. An interrupted move is
    resumed by doing it again.

    Args:
        target: the store to fill.
        keep_going: whether to pass over what cannot be taken over, instead of ending there;
            what came before it is stored in either case.
        on_bad: told of each such record.
        on_progress: told, after each chunk, how many entries it had and how far the source has
            been read by then.
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
        self._tell_bad = on_bad
        self._tell_progress = on_progress
        self._free = Semaphore(_CHATS_AT_ONCE)
        self._filling: dict[ChatKey, asyncio.Task[None]] = {}
        self.moved = ImportCounts()

    async def move(self, stream: AsyncIterator[Chunk | Finding]) -> ImportCounts:
        """Store everything that the stream gives, and return what it came to.

        Raises:
            BadRecordError: a record cannot be taken over, and `keep_going` is False.
            StorageError: the target failed.
        """
        try:
            async with TaskGroup() as tasks, aclosing(ahead(stream)) as chunks:
                await self._dispatch(chunks, tasks)
        except BaseExceptionGroup as group:
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
                if not self._keep_going:  # what came before it is stored first
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
        """Return the way of a chat's chunks to the task that stores them; None ends it."""
        if key in self._filling:  # a source that comes back to a chat: one after the other
            await self._filling[key]
        await self._free.acquire()
        queue: Queue[Chunk | None] = Queue(1)
        task = tasks.create_task(self._fill(key, queue))
        self._filling[key] = task
        task.add_done_callback(lambda _: self._filling.pop(key))
        return queue

    async def _fill(self, key: ChatKey, queue: Queue[Chunk | None]) -> None:
        landing = ChatImport(self._target, key, self.moved, self._bad)
        try:
            while (chunk := await queue.get()) is not None:
                await landing.add(chunk)
                self._tell_progress(len(chunk.entries), chunk.done)
            self.moved.chats += 1
        finally:
            await landing.close()
            self._free.release()

    def _bad(self, bad: Finding) -> None:
        self.moved.bad += 1
        if not self._keep_going:
            raise BadRecordError(str(bad))
        self._tell_bad(bad)


async def checked(stream: AsyncIterator[Chunk | Finding]) -> AsyncIterator[Chunk | Finding]:
    """Read the first chunk of a stream, before there is a target, and return all of it.

    Raises:
        BadRecordError: the source begins with a record that cannot be taken over.
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
