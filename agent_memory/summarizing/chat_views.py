"""The views of many chats over one store: when they are held, read, shown and compacted."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from agent_memory.errors import StorageError, SummarizerError
from agent_memory.events import Activated, Event, Evicted
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import LogSlice, SummaryRecord
from agent_memory.storage._engine.fair_share import OFF_LOOP, take_turn
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizers.base import Summarizer
from agent_memory.summarizing.buffers import Buffer, Buffers, Flight, wait_for_end
from agent_memory.summarizing.compactor import Compactor
from agent_memory.summarizing.draft import SummaryMaker
from agent_memory.summarizing.hooks import Hooks
from agent_memory.summarizing.loader import ViewReader
from agent_memory.summarizing.options import Limits, Trigger
from agent_memory.summarizing.summary_installer import SummaryInstaller
from agent_memory.summarizing.view import ChatView
from agent_memory.tokens import TokenCounter

_log = logging.getLogger(__name__)


class ChatViews:
    """Keeps the views of activated chats.

    Args:
        storage: where the logs and records are read and written.
        summarizer: what is asked for summaries.
        fallback: what is asked when it fails, or None.
        trigger: when a view is compacted.
        limits: what bounds the work and the memory.
        counter: counts tokens.
        hooks: the application's functions.
        background: whether saves and fetches do not wait for compactions.
        present: changes what is shown, such as a repair for a provider; None for nothing.
    """

    def __init__(
        self,
        storage: ChatStorage,
        summarizer: Summarizer,
        *,
        fallback: Summarizer | None,
        trigger: Trigger,
        limits: Limits,
        counter: TokenCounter,
        hooks: Hooks,
        background: bool,
        present: Callable[[list[ConversationMessage]], list[ConversationMessage]] | None,
    ) -> None:
        self._trigger = trigger
        self._limits = limits
        self._hooks = hooks
        self._background = background
        self._evicted: deque[Event] = deque()
        self._buffers = Buffers(limits.max_buffers, self._note_evicted)
        count = None if trigger.trigger_tokens is None else counter.count
        self._reader = ViewReader(storage, self._buffers.lock, count, present)
        self._installer = SummaryInstaller(storage, self._buffers.lock, self._reader)
        maker = SummaryMaker(summarizer, fallback, trigger, limits, counter)
        self._compactor = Compactor(
            self._buffers,
            trigger,
            limits,
            maker=maker,
            installer=self._installer,
            hooks=hooks,
        )

    def __len__(self) -> int:
        return len(self._buffers)

    # ------------------------------------------------------------- what happens to the store

    def saved(self, key: ChatKey, stored: LogSlice) -> None:
        """Take over what a save stored."""
        self._buffers.change(key, lambda buffer: buffer.saved(stored))

    def lost_answer(self, key: ChatKey) -> None:
        """Have the log asked before the chat is shown again: a save left by an exception."""
        self._buffers.change(key, Buffer.mark_stale)

    def forget(self, key: ChatKey) -> None:
        """Drop the chat's view: its log, or its records, are others now."""
        self._buffers.change(key, self._void)

    def _void(self, buffer: Buffer) -> None:
        buffer.void()
        self._buffers.discard(buffer)

    # --------------------------------------------------------------------------- compacting

    async def settle(self, key: ChatKey) -> Exception | None:
        """Compact the chat if a save has made that due; return the error of a failed attempt."""
        buffer = self._buffers.get(key)
        if buffer is None or buffer.view is None:
            return None
        flight = await self._start_if_due(buffer)
        if self._background:
            flight = buffer.flight if self._is_far_over(buffer) else None
        return None if flight is None else await _ended(flight)

    async def _start_if_due(self, buffer: Buffer) -> Flight | None:
        try:
            await self._installer.write_unsaved(buffer)
            if not buffer.is_current:
                await self._reader.current(buffer, check=False)
        except StorageError as error:  # the save itself has succeeded; the next fetch reads again
            _log.warning("the view of %s could not be read: %s", buffer.key, error)
            return None
        return self._compactor.start_if_due(buffer)

    def _is_far_over(self, buffer: Buffer) -> bool:
        view = buffer.view
        return view is not None and self._limits.is_far_over(self._trigger, view.size, view.tokens)

    async def compact_now(self, key: ChatKey, *, check: bool) -> SummaryRecord | None:
        """Compact the chat, due or not; return the new record, None if there was no gain.

        Raises:
            SummarizerError: the summarizer failed.
        """
        buffer, _ = self._buffers.get_or_add(key)
        before = (await self._reader.current(buffer, check=check)).record_id
        flight = self._compactor.start_now(buffer) or buffer.flight
        error = None if flight is None else await _ended(flight)
        if error is not None:
            raise stored_but(error) from error
        view = await self._reader.current(buffer, check=False)
        if view.record_id in (None, before):
            return None
        return await self._reader.newest_record(key)

    # ----------------------------------------------------------------------------- fetching

    async def fetch(
        self, key: ChatKey, limit: int | None, *, check: bool
    ) -> list[ConversationMessage]:
        """Return what the model sees.

        Args:
            key: which chat.
            limit: at most so many messages; None for all.
            check: first read what other writers stored.
        """
        buffer = self._buffers.get(key)
        if buffer is None:
            return await self._fetch_inactive(key, limit, check=check)
        view, known = buffer.view, 0 if buffer.view is None else buffer.view.last
        if view is None or check or not buffer.is_current:
            view = await self._reader.current(buffer, check=check)
        if not buffer.attempted:
            await self._first_attempt(buffer)
            view = await self._reader.current(buffer, check=False)
        elif view.last > known and self._compactor.is_due(buffer):
            # What others save, no save of ours has summarized. This fetch does not wait for it.
            view = await self._reader.adopt_newer(buffer, view)
            self._compactor.start_if_due(buffer)
        return await self._shown(view, limit)

    async def _fetch_inactive(
        self, key: ChatKey, limit: int | None, *, check: bool
    ) -> list[ConversationMessage]:
        await take_turn()
        with self._buffers.glance(key, self._trigger.messages + 1) as glance:
            seen = await self._reader.look(key, glance)
            if seen is not None and self._is_short(seen):
                return await self._shown(seen, limit)
            buffer, is_new = self._buffers.get_or_add(key)
            # A buffer that somebody else added meanwhile may show less than was seen here.
            check = check and not is_new
            view = await self._reader.current(buffer, check=check, glance=glance)
        if view.record_id is None and self._is_short(view):
            self._buffers.discard(buffer)
            return await self._shown(view, limit)
        if is_new:
            restored = view.record_id is not None
            await self._hooks.emit(Activated(key=key, messages=view.size, restored=restored))
        await self._first_attempt(buffer)
        while self._evicted:
            await self._hooks.emit(self._evicted.popleft())
        return await self._shown(await self._reader.current(buffer, check=False), limit)

    async def _shown(self, view: ChatView, limit: int | None) -> list[ConversationMessage]:
        with self._buffers.lock:  # another thread may be changing it
            if view.size <= OFF_LOOP:
                return view.newest(limit)
            window, work = view.known_window(limit), view.window_work(limit)
        return (await asyncio.to_thread(work)).copy() if window is None else window

    async def _first_attempt(self, buffer: Buffer) -> None:
        """Wait for the first compaction of a chat, together with all who fetch it meanwhile."""
        if buffer.attempted:
            return
        # Starting comes first: it notices that the loop of an earlier flight has been closed.
        flight = self._compactor.start_if_due(buffer) or buffer.flight
        if flight is not None and (not self._background or self._is_far_over(buffer)):
            await _ended(flight)

    def _is_short(self, view: ChatView) -> bool:
        return not self._trigger.exceeded(view.size, view.tokens)

    def held(self, key: ChatKey) -> ChatView | None:
        """Return the chat's view if it is held now."""
        buffer = self._buffers.get(key)
        return None if buffer is None else buffer.view

    def _note_evicted(self, buffer: Buffer) -> None:
        size = 0 if buffer.view is None else buffer.view.size
        self._evicted.append(Evicted(key=buffer.key, messages=size))

    # ------------------------------------------------------------------------------ closing

    async def close(self) -> None:
        """Wait for the compactions under way, give up what is left of them, and hold nothing."""
        flights = [flight for flight in self._buffers.flights if not flight.is_dead]
        if flights:
            waiting = [asyncio.ensure_future(_ended(flight)) for flight in flights]
            _, left = await asyncio.wait(waiting, timeout=self._limits.drain_timeout)
            self._give_up(flights, left)
        self._buffers.clear()

    def _give_up(self, flights: list[Flight], left: set[asyncio.Task[Exception | None]]) -> None:
        if left:
            _log.warning(
                "closed with %d of %d compactions unfinished after %s s; the messages are "
                "stored and are summarized when the chats are next used",
                len(left),
                len(flights),
                self._limits.drain_timeout,
            )
        for flight in flights:
            flight.cancel()
        for waiting in left:
            waiting.cancel()


def stored_but(error: Exception) -> SummarizerError:
    """The error of a save whose message is stored and whose summary failed."""
    text = f"the messages are stored, but not summarized: {error}"
    try:
        return type(error)(text) if isinstance(error, SummarizerError) else SummarizerError(text)
    except TypeError:  # an application's own error takes other arguments
        return SummarizerError(text)


async def _ended(flight: Flight) -> Exception | None:
    """Wait for a compaction, in whichever loop it is carried out; a cancellation ends the wait."""
    ended = await wait_for_end(flight.ended, lambda: flight.is_dead)
    return flight.ended.result() if ended else None
