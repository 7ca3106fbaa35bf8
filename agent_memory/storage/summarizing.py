"""The store that hands out a short view of long chats: :class:`SummarizingChatStorage`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from agent_memory.errors import InvalidRequestError, StorageError, SummarizerError
from agent_memory.events import Activated, Event, Evicted
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import Entry, LogSlice
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.buffers import Buffer, Buffers, Flight
from agent_memory.storage.compactor import Compactor
from agent_memory.storage.policy import Limits, Trigger
from agent_memory.storage.summary_installer import SummaryInstaller
from agent_memory.storage.summary_maker import SummaryMaker
from agent_memory.storage.view_reader import ViewReader
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.summarizers.base import Summarizer
from agent_memory.tokens import TokenCounter, guarded

_log = logging.getLogger(__name__)


class SummarizingChatStorage(WrapperChatStorage):
    """Keeps every message in the inner store and hands out a short view of long chats.

    ``fetch_chat`` gives *head + summary + tail*: leading system and pinned messages, what a
    summarizer made of the older ones, and the newest ones raw. Everything else is raw. A chat
    is activated by the first fetch that finds it longer than the trigger; until then nothing is
    held of it. From then on a save that exceeds the trigger has it summarized. The message is
    stored before anything else happens, and whatever the summarizer does, the save succeeds.

    Args:
        storage: any store; the truth.
        summarizer: an async or plain function ``(history, keep_last) -> list``: what stands for
            the older messages, then the newest ones as given; or an object with
            ``summarize(messages, context_tokens) -> SummaryResult | None``. A plain one runs
            in a worker thread.
        trigger_at: pairs of messages; a chat of strictly more than twice as many messages is
            summarized (at least 2).
        keep_last: pairs of messages the summarizer is asked to keep (at least 1, below
            `trigger_at`).
        trigger_tokens: a view of strictly more tokens is summarized too; None for no limit.
        token_counter: counts tokens; by default an estimate that errs high.
        fallback: another summarizer that stands in when the first one fails, such as
            ``ExtractiveSummarizer()``.
        summarizer_timeout: seconds a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in its middle; None for no limit.
        max_buffers: chats whose view is held in memory; the least recently used gives way.
        shared: whether a fetch first reads what other writers stored; None for what the
            store's `scope` suggests (yes for ``"host"`` and ``"network"``).
        on_summarizer_error: ``"log"``, or ``"raise"``: a save whose summary failed raises the
            ``SummarizerError`` after the message is stored.
        on_event: an async or plain function that is told of each :class:`~agent_memory.events.
            Event`; what it raises is logged.
        close_inner: whether :meth:`aclose` closes the inner store too.

    Raises:
        InvalidRequestError: an argument is none of what is said above.
    """

    def __init__(
        self,
        storage: ChatStorage,
        summarizer: Summarizer,
        trigger_at: int = 20,
        keep_last: int = 2,
        *,
        trigger_tokens: int | None = None,
        token_counter: TokenCounter | None = None,
        fallback: Summarizer | None = None,
        summarizer_timeout: float | None = 60.0,
        max_summary_tokens: int | None = 8_000,
        max_buffers: int = 1_000,
        shared: bool | None = None,
        on_summarizer_error: Literal["log", "raise"] = "log",
        on_event: Callable[[Event], object] | None = None,
        close_inner: bool = True,
    ) -> None:
        super().__init__(storage, close_inner=close_inner)
        _check_summarizer(summarizer, "summarizer")
        if fallback is not None:
            _check_summarizer(fallback, "fallback")
        if on_summarizer_error not in ("log", "raise"):
            raise InvalidRequestError(
                f"on_summarizer_error must be 'log' or 'raise', not {on_summarizer_error!r}"
            )
        if on_event is not None and not callable(on_event):
            raise InvalidRequestError("on_event must be a function that takes an event")
        self._strict = on_summarizer_error == "raise"
        self._shared = shared
        self._trigger = Trigger(
            trigger_at=trigger_at, keep_last=keep_last, trigger_tokens=trigger_tokens
        )
        limits = Limits(
            max_buffers=max_buffers,
            summarizer_timeout=summarizer_timeout,
            max_summary_tokens=max_summary_tokens,
        )
        counter = guarded(token_counter)
        self._evicted: deque[Event] = deque()
        self._buffers = Buffers(limits.max_buffers, self._note_evicted)
        self._reader = ViewReader(
            self, self._buffers, None if trigger_tokens is None else counter.count
        )
        self._installer = SummaryInstaller(self, self._buffers, self._reader, self._trigger)
        maker = SummaryMaker(summarizer, fallback, self._trigger, limits, counter)
        self._compactor = Compactor(self._buffers, self._trigger, maker, self._installer, on_event)

    @property
    def buffered_chats(self) -> int:
        """How many chats' views are held in memory now."""
        return len(self._buffers)

    # --------------------------------------------------------------------------------- saving

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        try:
            stored = await super()._append(key, entries)
        except BaseException:
            self._with_buffer(key, Buffer.mark_stale)
            raise
        self._with_buffer(key, lambda buffer: buffer.saved(stored))
        return stored

    async def _forget(self, key: ChatKey, keep: int) -> int:
        try:
            return await super()._forget(key, keep)
        finally:
            self._with_buffer(key, self._void)

    async def _settled(self, key: ChatKey, stored: LogSlice) -> None:
        await super()._settled(key, stored)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.view is None:
            return
        flight = await self._start_if_due(buffer)
        error = None if flight is None else await _ended(flight)
        if error is not None and self._strict:
            raise SummarizerError(f"the message is stored, but not summarized: {error}") from error

    async def _start_if_due(self, buffer: Buffer) -> Flight | None:
        try:
            await self._installer.write_unsaved(buffer)
            if not buffer.is_current:
                await self._reader.current(buffer, check=False)
        except StorageError as error:  # the save itself has succeeded; the next fetch reads again
            _log.warning("the view of %s could not be read: %s", buffer.key, error)
            return None
        return self._compactor.start_if_due(buffer)

    def _with_buffer(self, key: ChatKey, change: Callable[[Buffer], None]) -> None:
        with self._buffers.lock:
            buffer = self._buffers.get(key)
            if buffer is not None:
                change(buffer)

    def _void(self, buffer: Buffer) -> None:
        buffer.void()
        self._buffers.discard(buffer)

    # -------------------------------------------------------------------------------- fetching

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        buffer = self._buffers.get(key)
        if buffer is None:
            return await self._fetch_inactive(key, limit)
        shared = self._is_shared
        view = buffer.view
        if view is None or shared or not buffer.is_current:
            view = await self._reader.current(buffer, check=shared)
        if not buffer.attempted:
            await self._first_attempt(buffer)
            view = await self._reader.current(buffer, check=False)
        return view.newest(limit)

    async def _fetch_inactive(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        whole = await self._reader.whole(key, self._trigger.messages)
        if whole is not None and self._trigger.exceeded(whole) is None:
            return whole.newest(limit)
        buffer, is_new = self._buffers.get_or_add(key)
        view = await self._reader.current(buffer, check=False)
        if view.record_id is None and self._trigger.exceeded(view) is None:
            self._buffers.discard(buffer)
            return view.newest(limit)
        if is_new:
            restored = view.record_id is not None
            await self._compactor.emit(Activated(key=key, messages=view.size, restored=restored))
        await self._first_attempt(buffer)
        await self._tell_evicted()
        return (await self._reader.current(buffer, check=False)).newest(limit)

    async def _first_attempt(self, buffer: Buffer) -> None:
        """Wait for the first compaction of a chat, together with all who fetch it meanwhile."""
        if buffer.attempted:
            return
        flight = buffer.flight or self._compactor.start_if_due(buffer)
        if flight is not None:
            await _ended(flight)

    @property
    def _is_shared(self) -> bool:
        return self.scope != "process" if self._shared is None else self._shared

    def _note_evicted(self, buffer: Buffer) -> None:
        size = 0 if buffer.view is None else buffer.view.size
        self._evicted.append(Evicted(key=buffer.key, messages=size))

    async def _tell_evicted(self) -> None:
        while self._evicted:
            await self._compactor.emit(self._evicted.popleft())

    # --------------------------------------------------------------------------------- closing

    async def _close(self) -> None:
        for flight in self._buffers.flights:
            await _ended(flight)
        self._buffers.clear()
        await super()._close()


async def _ended(flight: Flight) -> Exception | None:
    """Wait for a compaction, in whichever loop it is carried out; a cancellation ends the wait."""
    return await asyncio.shield(asyncio.wrap_future(flight.ended))


def _check_summarizer(summarizer: object, name: str) -> None:
    if not callable(summarizer) and not callable(getattr(summarizer, "summarize", None)):
        raise InvalidRequestError(
            f"{name} must be a function (history, keep_last) or an object with a method "
            f"summarize(messages, context_tokens), not {type(summarizer).__name__}"
        )
