"""From any source of messages into a store: resumable, in bounded memory."""

from __future__ import annotations

import asyncio
from asyncio import Queue, Semaphore, TaskGroup
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, cast

import attrs

from agent_memory.audit.carrying import carry_summaries
from agent_memory.audit.chunks import Bad, BadRecordError, Chunk
from agent_memory.audit.landing import Landing
from agent_memory.audit.pages import ahead
from agent_memory.messages import ChatKey
from agent_memory.storage.base import ChatStorage

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
