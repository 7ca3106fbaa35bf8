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
from agent_memory.audit.findings import Bad, BadRecordError, damage_in, is_unreadable
from agent_memory.audit.known import KnownIds, payload_digest
from agent_memory.audit.log_pages import ahead, pages
from agent_memory.audit.relocating import relocated, speaks_of_positions, without_hints
from agent_memory.errors import (
    CorruptedRecordError,
    InvalidRequestError,
    MessageTooLargeError,
    StorageConflictError,
)
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import Covered, Entry, LogSlice, Note, SummaryRecord, same_payload
from agent_memory.storage._engine.append_plan import conflict
from agent_memory.storage.base import ChatStorage

_REFUSALS = (
    StorageConflictError,
    MessageTooLargeError,
    CorruptedRecordError,
    InvalidRequestError,
)
"""What a store says of a message that it will never take."""


@attrs.define
class Positions:
    """Where entries have come to lie: source positions to target positions.

    Runs that lie equally far from where they were are one item, so that it stays small.
    """

    _starts: list[tuple[int, int, int]] = attrs.field(factory=list[tuple[int, int, int]])

    def add(self, source: int, target: int) -> None:
        """Note where one entry lies; in order."""
        if self._starts:
            first, shift, last = self._starts[-1]
            if target - source == shift and source == last + 1:
                self._starts[-1] = first, shift, source
                return
        self._starts.append((source, target - source, source))

    def add_run(self, source: Sequence[Entry], target: Sequence[Entry]) -> bool:
        """Note where entries lie that follow one another in both; False if they do not."""
        first, last = source[0].position, source[-1].position
        start, end = target[0].position, target[-1].position
        if first is None or last is None or start is None or end is None:
            return first is None
        count = len(source)
        if len(target) != count or last - first != count - 1 or end - start != count - 1:
            return False
        self.add(first, start)
        if count > 1:
            start_of, shift, _ = self._starts[-1]
            self._starts[-1] = start_of, shift, last
        return True

    def of(self, source: int) -> int | None:
        """Return where the entry from a source position lies; None for one that is not there."""
        for first, shift, last in self._starts:
            if first <= source <= last:
                return source + shift
        return None


def _is_plain(entries: Sequence[Entry]) -> bool:
    return not any(type(entry) is Note for entry in entries)


def _apart(chunk: Chunk, indices: Sequence[int]) -> Iterator[list[int]]:
    """Part a batch before entries that speak of positions, so that these are known by then."""
    batch: list[int] = []
    for index in indices:
        if batch and speaks_of_positions(chunk.entries[index]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Landing:
    """One chat of the target, filled from the source's chunks.

    The target's log is walked beside the source. As long as both hold the same entries in the
    same order, as after an interrupted run, that takes one pass and no memory. From the first
    difference on, all ids of the target's chat are looked up.

    Args:
        target: the store to fill.
        key: which chat.
        on_bad: told of each entry that the target never takes; may raise.
    """

    def __init__(self, target: ChatStorage, key: ChatKey, on_bad: Callable[[Bad], None]) -> None:
        self._target = target
        self._key = key
        self._on_bad = on_bad
        self._walk: AsyncGenerator[LogSlice] = pages(target, key)
        self._next: deque[Entry] = deque()
        self._walked = False
        self._known: KnownIds | None = None
        self._refused: str | None = None
        """The source of a conversation that is not the one that the chat holds."""
        self.positions = Positions()
        self.floor = 0
        self.stored_messages = 0
        self.stored_notes = 0
        self.present = 0

    @property
    def is_copy(self) -> bool:
        """Whether the target's chat holds the source's entries in their order, from the start."""
        return self._known is None

    async def add(self, chunk: Chunk) -> None:
        """Store what the target does not hold yet of a chunk."""
        if self._refused is not None and chunk.source == self._refused:
            return
        if self._walked and self._known is None and _is_plain(chunk.entries):
            await self._store(chunk, range(len(chunk.entries)))
            return
        fresh: list[int] = []
        for index, entry in enumerate(chunk.entries):
            if is_unreadable(entry):
                self._on_bad(damage_in(entry, chunk.place(index)))
            elif self._walked and self._known is None:
                fresh.append(index)
            elif not await self._look(chunk, index, fresh):
                return
        for batch in _apart(chunk, fresh):
            await self._store(chunk, batch)

    async def close(self) -> None:
        """Let go of what was held."""
        await self._walk.aclose()
        if self._known is not None:
            self._known.close()

    async def _look(self, chunk: Chunk, index: int, fresh: list[int]) -> bool:
        """Look an entry up; False where it shows that the chunk belongs to another chat."""
        entry = chunk.entries[index]
        try:
            held = await self._holds(entry)
        except StorageConflictError as error:
            self._refuse(chunk, index, error)
            return self._refused is None
        if held:
            self.present += 1
        else:
            fresh.append(index)
        return True

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
        self._on_bad(Bad(chunk.place(index), reason))

    async def _holds(self, entry: Entry) -> bool:
        if self._known is None:
            other = await self._following()
            if other is None:
                return False
            if other.id == entry.id:
                self._next.popleft()
                if not same_payload(without_hints(entry), without_hints(other)):
                    raise conflict(self._key, entry.id)
                self._note_position(entry, other.position)
                return True
            self._known = await self._all_known()
        digest = self._known.digest(entry.id)
        if digest is not None and digest != payload_digest(entry):
            raise conflict(self._key, entry.id)
        return digest is not None

    async def _following(self) -> Entry | None:
        if not self._next and not self._walked:
            part = await anext(self._walk, None)
            if part is None:
                self._walked = True
            else:
                self.floor = part.floor
                self._next.extend(part.entries)
        return self._next[0] if self._next else None

    async def _all_known(self) -> KnownIds:
        known = KnownIds()
        async for part in pages(self._target, self._key):
            known.add(part.entries)
        self._walked = True
        return known

    def _note_position(self, entry: Entry, position: int | None) -> None:
        if entry.position is not None and position is not None:
            self.positions.add(entry.position, position)

    def _place_of(self, source: int) -> int | None:
        return self.positions.of(source) if self.is_copy else None

    async def _store(self, chunk: Chunk, indices: Sequence[int]) -> None:
        if not indices or (self._refused is not None and chunk.source == self._refused):
            return
        entries = [chunk.entries[index] for index in indices]
        entries[0] = relocated(entries[0], self._place_of)  # only a batch's first may need it
        try:
            stored = await self._target._save(self._key, entries)
        except _REFUSALS as error:
            if len(indices) == 1:
                self._refuse(chunk, indices[0], error)
                return
            # Nothing was stored. Halves find the one that is refused, and store the others.
            middle = len(indices) // 2
            await self._store(chunk, indices[:middle])
            await self._store(chunk, indices[middle:])
            return
        self.floor = stored.floor
        self._count(entries, stored)

    def _count(self, entries: Sequence[Entry], stored: LogSlice) -> None:
        if not self.positions.add_run(entries, stored.entries):
            places = {entry.id: entry.position for entry in stored.entries}
            for entry in entries:
                self._note_position(entry, places.get(entry.id))
        notes = sum([isinstance(entry, Note) for entry in entries])
        self.stored_notes += notes
        self.stored_messages += len(entries) - notes
        if self._known is not None:
            self._known.add(entries)


_CHATS_AT_ONCE: Final = 8
"""Short chats share a store's commits when some are stored at the same time."""
_ADVICE: Final = "(--keep-going passes over such records)"


@attrs.define
class Moved:
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


class Mover:
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
        on_bad: Callable[[Bad], object] = str,
        on_progress: Callable[[int, int], object] = max,
    ) -> None:
        self._target = target
        self._keep_going = keep_going
        self._tell_bad = on_bad
        self._tell_progress = on_progress
        self._free = Semaphore(_CHATS_AT_ONCE)
        self._filling: dict[ChatKey, asyncio.Task[None]] = {}
        self.moved = Moved()

    async def move(self, stream: AsyncIterator[Chunk | Bad]) -> Moved:
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

    async def _dispatch(self, chunks: AsyncIterator[Chunk | Bad], tasks: TaskGroup) -> None:
        lane: _Lane | None = None
        async for chunk in chunks:
            if isinstance(chunk, Bad):
                if not self._keep_going:
                    await _end(lane)
                    await asyncio.gather(*self._filling.values())
                self._bad(chunk)
            else:
                if lane is None or chunk.key != lane.key:
                    await _end(lane)
                    lane = await self._new_lane(chunk.key, tasks)
                await lane.queue.put(chunk)
        await _end(lane)

    async def _new_lane(self, key: ChatKey, tasks: TaskGroup) -> _Lane:
        if key in self._filling:  # a source that comes back to a chat: one after the other
            await self._filling[key]
        await self._free.acquire()
        lane = _Lane(key)
        task = tasks.create_task(self._fill(key, lane.queue))
        self._filling[key] = task
        task.add_done_callback(lambda _: self._filling.pop(key))
        return lane

    async def _fill(self, key: ChatKey, queue: Queue[Chunk | None]) -> None:
        landing = Landing(self._target, key, self._bad)
        moved = self.moved
        try:
            while (chunk := await queue.get()) is not None:
                await landing.add(chunk)
                if chunk.summaries:
                    carried = await carry_summaries(self._target, key, chunk.summaries, landing)
                    moved.summaries += carried[0]
                    moved.summaries_left += carried[1]
                self._tell_progress(len(chunk.entries), chunk.done)
            moved.chats += 1
        finally:
            moved.messages += landing.stored_messages
            moved.notes += landing.stored_notes
            moved.present += landing.present
            await landing.close()
            self._free.release()

    def _bad(self, bad: Bad) -> None:
        self.moved.bad += 1
        if not self._keep_going:
            raise BadRecordError(str(bad))
        self._tell_bad(bad)


async def checked(stream: AsyncIterator[Chunk | Bad]) -> AsyncIterator[Chunk | Bad]:
    """Read the first chunk of a stream, before there is a target, and return all of it.

    Raises:
        BadRecordError: the source begins with a record that cannot be taken over.
    """
    first = await anext(stream, None)
    if isinstance(first, Bad):
        raise BadRecordError(f"{first}; nothing was stored {_ADVICE}")
    return _with_first(first, stream)


async def _with_first(
    first: Chunk | None, stream: AsyncIterator[Chunk | Bad]
) -> AsyncGenerator[Chunk | Bad]:
    if first is not None:
        yield first
    async for item in stream:
        yield item


@attrs.frozen
class _Lane:
    """The way of one chat's chunks to the task that stores them; None ends it."""

    key: ChatKey
    queue: Queue[Chunk | None] = attrs.field(factory=lambda: Queue(1))


async def _end(lane: _Lane | None) -> None:
    if lane is not None:
        await lane.queue.put(None)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return _first_of(cast("BaseExceptionGroup[BaseException]", first))
    return first


async def carry_summaries(
    target: ChatStorage, key: ChatKey, records: Sequence[SummaryRecord], landing: Landing
) -> tuple[int, int]:
    """Store a chat's records in the target, their positions those that the messages have there.

    A record is left out when the target's chat holds other messages between those it speaks
    of, or a summary of its own: the view is then made anew from the raw log.

    Returns:
        How many are in the target now, and how many were left out.
    """
    store = target.summaries()
    if store is None or not records or not landing.is_copy:
        return 0, len(records)
    moved = [_moved(record, key, landing) for record in records]
    wanted = [record for record in moved if record is not None]
    known = [record.id for record in await store.list_summaries(key)]
    if known != [record.id for record in wanted[: len(known)]]:
        return 0, len(records)
    carried, newest = len(known), known[-1] if known else None
    for record in wanted[len(known) :]:
        if not await store.save_summary(key, record, replaces=newest):
            break
        newest, carried = record.id, carried + 1
    return carried, len(records) - carried


def _moved(record: SummaryRecord, key: ChatKey, landing: Landing) -> SummaryRecord | None:
    positions = landing.positions
    reach = positions.of(record.position)
    first, last = positions.of(record.covered.first), positions.of(record.covered.last)
    told = positions.of(record.told) if record.told else 0
    head, summary = (_landed(part, key, landing) for part in (record.head, record.summary))
    if reach is None or first is None or last is None or told is None:
        return None
    if head is None or summary is None:
        return None
    return attrs.evolve(
        record,
        position=reach,
        floor=landing.floor,
        covered=Covered(first, last, record.covered.count),
        known=positions.of(record.known) or 0,
        told=told,
        head=head,
        summary=summary,
    )


def _landed(
    messages: Sequence[ConversationMessage], key: ChatKey, landing: Landing
) -> tuple[ConversationMessage, ...] | None:
    landed: list[ConversationMessage] = []
    for message in messages:
        if message.position is None:  # made by a summarizer
            landed.append(message)
            continue
        place = landing.positions.of(message.position)
        if place is None:
            return None
        landed.append(message.placed(place, key.agent_id))
    return tuple(landed)
