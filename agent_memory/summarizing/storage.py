"""The store that hands out a short view of long chats: :class:`SummarizingChatStorage`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Unpack

from agent_memory.errors import StorageError
from agent_memory.events import Activated, Event, Evicted
from agent_memory.explaining import Explanation, explain
from agent_memory.log import Entry, LogSlice, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import Provider
from agent_memory.storage._engine.event_loops import OFF_LOOP, SharedTask, take_turn
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.summarizers.base import Summarizer, check_summarizer
from agent_memory.summarizing.buffers import Buffer, Buffers
from agent_memory.summarizing.compactor import Compactor, notify, stored_but
from agent_memory.summarizing.loader import ViewLoader
from agent_memory.summarizing.options import (
    DEFAULT_KEEP_LAST,
    DEFAULT_TRIGGER_AT,
    StorageOptions,
    SummarizingOptions,
    combine_options,
)
from agent_memory.summarizing.view import ChatView
from agent_memory.telemetry import span
from agent_memory.tokens import guarded

_log = logging.getLogger(__name__)


class SummarizingChatStorage(WrapperChatStorage):
    """Keeps every message in the inner store and hands out a short view of long chats.

    ``fetch_chat`` gives *head + summary + tail*: leading system and pinned messages, what a
    summarizer made of the older ones, and the newest ones raw. Everything else is raw. Under a
    ``max_history_size`` the newest exchange is always whole, even if it alone is larger; then come
    the head, the summary and older exchanges, each as far as there is room. A chat
    becomes active at the first fetch that finds it longer than the trigger; before that, nothing
    of it is held in memory. From then on a save that exceeds the trigger has it summarized, and
    waits for that unless `background` is set. A fetch that finds other writers' saves over the
    trigger starts a summary and does not wait. The message is stored before anything else
    happens, and whatever the summarizer does, the save succeeds.

    Leading system messages and pinned exchanges are not counted by the trigger and not given to
    the summarizer. The newest exchange stays in the view even if the summarizer returns only
    a summary. So do an unanswered question, and the question of a turn that is cut between its
    tool calls. A summarizer that keeps too much does not stop the next summary; a view that
    stays over its trigger is logged as a warning. A turn that saves each result with the next
    call, so that an exchange is always open, exceeds the trigger by a quarter at most.

    With `trigger_tokens`, and a summarizer that halves its input, the view has at most about twice
    that many tokens, not counting what must stay and the newest save: a summary that leaves the
    view near the limit is followed by the next one after a quarter of the limit has come.

    Args:
        storage: any store; it holds every message.
        summarizer: an async or plain function ``(history, keep_last) -> list``: what stands for
            the older messages, then the newest ones as given; or an object with
            ``summarize(messages, context_tokens) -> SummaryResult | None``. A plain one runs
            in a worker thread.
        trigger_at: pairs of messages; a chat of strictly more than twice as many messages is
            summarized (at least 2).
        keep_last: pairs of messages the summarizer is asked to keep (at least 1, below
            `trigger_at`).
        trigger_tokens: a view of strictly more tokens is summarized too; None for no limit.
        provider: ``"openai"``, ``"openai_responses"``, ``"anthropic"`` or ``"bedrock"``: the view
            is made valid for it.
        fallback: another summarizer, asked when the first one fails.
        background: whether a save returns when it is durable and the summary is made behind it.
        on_event: an async or plain function, called with each
            :class:`~agent_memory.events.Event`.
        options: all options in one value; those given by name take precedence.
        close_inner: whether :meth:`aclose` closes the inner store too.
        others: any other option of :class:`~agent_memory.summarizing.SummarizingOptions`, by name.

    Raises:
        InvalidRequestError: an argument is out of its range or of another type.
    """

    def __init__(
        self,
        storage: ChatStorage,
        summarizer: Summarizer,
        trigger_at: int = DEFAULT_TRIGGER_AT,
        keep_last: int = DEFAULT_KEEP_LAST,
        *,
        trigger_tokens: int | None = None,
        provider: Provider | None = None,
        fallback: Summarizer | None = None,
        background: bool | None = None,
        on_event: Callable[[Event], object] | None = None,
        options: SummarizingOptions | None = None,
        close_inner: bool = True,
        **others: Unpack[StorageOptions],
    ) -> None:
        super().__init__(storage, close_inner=close_inner)
        # What a cancellation leaves of the inner append is read before the next answer.
        self._append_is_cancel_safe = self._inner_append_is_cancel_safe
        check_summarizer(summarizer, "summarizer")
        named = {
            "trigger_at": trigger_at,
            "keep_last": keep_last,
            "trigger_tokens": trigger_tokens,
            "provider": provider,
            "fallback": fallback,
            "background": background,
            "on_event": on_event,
        }
        self._options = options = combine_options(options, named, others, allowed=StorageOptions)
        self._evicted: deque[Event] = deque()
        self._buffers = Buffers(
            options.max_buffers,
            self._note_evicted,
            summaries_at_once=options.max_concurrent_summaries,
        )
        counter = guarded(options.token_counter)
        # The inner store is read, not this one: summaries under way still read while this one
        # closes.
        self._loader = ViewLoader(
            storage,
            self._buffers.lock,
            None if options.trigger_tokens is None else counter.count,
            options.presenter(),
        )
        self._compactor = Compactor(
            storage, self._loader, self._buffers, summarizer, options=options, counter=counter
        )

    @property
    def buffered_chats(self) -> int:
        """How many chats' views are held in memory now."""
        return len(self._buffers)

    # -------------------------------------------------------------------------------- saving

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        with span("save", key):
            try:
                stored = await super()._append(key, entries)
            except BaseException:
                self._buffers.change(key, Buffer.mark_stale)
                raise
            self._buffers.change(key, lambda buffer: buffer.saved(stored))
            return stored

    async def _after_append(self, key: ChatKey, stored: LogSlice) -> None:
        await super()._after_append(key, stored)
        error = await self._compact_if_due(key)
        if error is not None and self._options.on_summarizer_error == "raise":
            raise stored_but(error) from error

    async def _compact_if_due(self, key: ChatKey) -> Exception | None:
        """Compact the chat if a save has made that due; return the error of a failed attempt."""
        buffer = self._buffers.get(key)
        view = None if buffer is None else buffer.view  # another thread may drop it meanwhile
        if buffer is None or view is None:
            return None
        if buffer.is_current and buffer.unsaved is None and self._is_short(view):
            return None
        try:
            await self._compactor.write_unsaved(buffer)
            if not buffer.is_current:
                await self._loader.current(buffer, check=False)
        except StorageError as error:  # the save itself has succeeded; the next fetch reads again
            _log.warning("the view of %s could not be read: %s", key, error)
            task = None
        else:
            task = self._compactor.start_if_due(buffer)
        if self._options.background:
            task = buffer.attempts.task if self._is_far_over(buffer) else None
        return None if task is None else await task.wait()

    def _is_far_over(self, buffer: Buffer) -> bool:
        view = buffer.view
        return view is not None and self._options.is_far_over(view.size, view.tokens)

    async def _forget(self, key: ChatKey, keep: int) -> int:
        try:
            return await super()._forget(key, keep)
        finally:
            self._buffers.change(key, self._reset)

    def _reset(self, buffer: Buffer) -> None:
        """Drop the chat's view: its log, or its records, are others now."""
        buffer.reset()
        self._buffers.discard(buffer)

    # ------------------------------------------------------------------------------ fetching

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        with span("fetch", key):
            buffer = self._buffers.get(key)
            if buffer is None:
                return await self._fetch_inactive(key, limit)
            return await self._fetch_active(buffer, limit)

    async def _fetch_active(self, buffer: Buffer, limit: int | None) -> list[ConversationMessage]:
        check = self._is_shared
        view = buffer.view
        known = 0 if view is None else view.last
        if view is None or check or not buffer.is_current:
            view = await self._loader.current(buffer, check=check)
        if not buffer.attempted:
            await self._first_attempt(buffer)
            view = await self._loader.current(buffer, check=False)
        elif view.last > known and self._compactor.is_due(buffer):
            # Other processes saved this, so no save here has started a summary. This fetch starts
            # one and does not wait for it.
            view = await self._loader.adopt_newer(buffer, view)
            self._compactor.start_if_due(buffer)
        return await self._shown(view, limit)

    async def _fetch_inactive(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        await take_turn()
        with self._buffers.peek(key, self._options.trigger_messages + 1) as peek:
            peeked = await self._loader.peek(key, peek)
            if peeked is not None and self._is_short(peeked):
                return await self._shown(peeked, limit)
            buffer, is_new = self._buffers.get_or_add(key)
            # A buffer that another fetch added during the read may show less than this read saw.
            check = self._is_shared and not is_new
            view = await self._loader.current(buffer, check=check, peek=peek)
        if view.record_id is None and self._is_short(view):
            self._buffers.discard(buffer)
            return await self._shown(view, limit)
        if is_new:
            restored = view.record_id is not None
            await notify(self._options, Activated(key=key, messages=view.size, restored=restored))
        await self._first_attempt(buffer)
        while self._evicted:
            await notify(self._options, self._evicted.popleft())
        return await self._shown(await self._loader.current(buffer, check=False), limit)

    async def _first_attempt(self, buffer: Buffer) -> None:
        """Wait for the first compaction of a chat; concurrent fetches wait for the same one."""
        if buffer.attempted:
            return
        # Starting comes first: it notices that the loop of an earlier one has been closed.
        task = self._compactor.start_if_due(buffer) or buffer.attempts.task
        if task is not None and (not self._options.background or self._is_far_over(buffer)):
            await task.wait()

    async def _shown(self, view: ChatView, limit: int | None) -> list[ConversationMessage]:
        with self._buffers.lock:  # another thread may be changing it
            if view.size <= OFF_LOOP:
                return view.newest(limit)
            window, work = view.known_window(limit), view.window_work(limit)
        return (await asyncio.to_thread(work)).copy() if window is None else window

    def _is_short(self, view: ChatView) -> bool:
        return not self._options.exceeded(view.size, view.tokens)

    @property
    def _is_shared(self) -> bool:
        shared = self._options.shared
        return self.scope != "process" if shared is None else shared

    def _note_evicted(self, buffer: Buffer) -> None:
        size = 0 if buffer.view is None else buffer.view.size
        self._evicted.append(Evicted(key=buffer.key, messages=size))

    # ------------------------------------------------------------------------------- closing

    async def _close(self) -> None:
        """Wait for the compactions under way, give up what is left of them, and hold nothing."""
        await self._drain()
        await super()._close()

    async def _drain(self) -> None:
        tasks = [task for task in self._buffers.tasks if task.is_live]
        if tasks:
            waiting = [asyncio.ensure_future(task.wait()) for task in tasks]
            _, left = await asyncio.wait(waiting, timeout=self._options.drain_timeout)
            self._give_up(tasks, left)
        self._buffers.clear()

    def _give_up(
        self, tasks: list[SharedTask[Exception]], left: set[asyncio.Task[Exception | None]]
    ) -> None:
        if left:
            _log.warning(
                "closed with %d of %d compactions unfinished after %s s; the messages are "
                "stored and are summarized when the chats are next used",
                len(left),
                len(tasks),
                self._options.drain_timeout,
            )
        for task in tasks:
            task.cancel()
        for waiting in left:
            waiting.cancel()

    # -------------------------------------------------------------------- accounts and commands

    async def explain(self, user_id: str, session_id: str, agent_id: str) -> Explanation:
        """Say what the model sees of a chat, and of each raw message how it stands in that.

        It reads the whole log.
        """
        key = ChatKey(user_id, session_id, agent_id)
        await self._ready()
        shown = await self._fetch(key, None)
        log = (await self.read_log(user_id, session_id, agent_id)).entries
        records = await self._records(key)
        buffer = self._buffers.get(key)
        view = (None if buffer is None else buffer.view) or ChatView()
        return await asyncio.to_thread(  # the log may be long
            explain,
            key,
            shown,
            log,
            records,
            head=view.head,
            covered_through=view.covered_through,
            held_back={message.id for message in view.held_back},
        )

    async def compaction_history(
        self, user_id: str, session_id: str, agent_id: str
    ) -> list[SummaryRecord]:
        """Return the chat's summary records, oldest first: what each covers, saved and cost."""
        key = ChatKey(user_id, session_id, agent_id)
        await self._ready()
        return await self._records(key)

    async def compact_now(
        self, user_id: str, session_id: str, agent_id: str
    ) -> SummaryRecord | None:
        """Summarize the chat now, whatever the trigger says.

        A chat no longer than the trigger is shown raw again once its view is not held any more.

        Returns:
            The live summary's record if a new one was made, else None: nothing to gain.

        Raises:
            SummarizerError: the summarizer failed; the view is unchanged.
        """
        key = ChatKey(user_id, session_id, agent_id)
        await self._ready()
        buffer, _ = self._buffers.get_or_add(key)
        before = (await self._loader.current(buffer, check=self._is_shared)).record_id
        task = self._compactor.start_now(buffer) or buffer.attempts.task
        error = None if task is None else await task.wait()
        if error is not None:
            raise stored_but(error) from error
        view = await self._loader.current(buffer, check=False)
        if view.record_id in (None, before):
            return None
        return await self._loader.newest_record(key)

    async def rebuild(self, user_id: str, session_id: str, agent_id: str) -> int:
        """Forget the chat's summaries; the next fetch starts from the raw log.

        Returns:
            How many records were removed.
        """
        key = ChatKey(user_id, session_id, agent_id)
        await self._ready()
        summaries = self.summaries()
        try:
            return 0 if summaries is None else await summaries.forget_summaries(key)
        finally:
            self._buffers.change(key, self._reset)

    async def _records(self, key: ChatKey) -> list[SummaryRecord]:
        summaries = self.summaries()
        return [] if summaries is None else await summaries.list_summaries(key)
