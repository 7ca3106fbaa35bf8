"""The store that hands out a short view of long chats: :class:`SummarizingChatStorage`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from agent_memory.errors import InvalidRequestError
from agent_memory.events import CompactionRequest, Event
from agent_memory.explaining import Explanation, explain
from agent_memory.log import retracted_ids
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import Provider
from agent_memory.records import Entry, LogSlice, SummaryRecord
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.summarizers.base import Summarizer, check_summarizer
from agent_memory.summarizing.chat_views import ChatViews, stored_but
from agent_memory.summarizing.hooks import Hooks
from agent_memory.summarizing.options import Limits, Trigger
from agent_memory.summarizing.presenting import presenter
from agent_memory.telemetry import is_traced, span
from agent_memory.tokens import TokenCounter, guarded


class SummarizingChatStorage(WrapperChatStorage):
    """Keeps every message in the inner store and hands out a short view of long chats.

    ``fetch_chat`` gives *head + summary + tail*: leading system and pinned messages, what a
    summarizer made of the older ones, and the newest ones raw. Everything else is raw. Under a
    ``max_history_size`` the newest exchange is always whole, even if it alone is larger; then come
    the head, the summary and older exchanges, each as far as there is room. A chat
    is activated by the first fetch that finds it longer than the trigger; until then nothing is
    held of it. From then on a save that exceeds the trigger has it summarized, and so does,
    behind it, a fetch that finds that others' saves exceed it. The message is stored before
    anything else happens, and whatever the summarizer does, the save succeeds.

    Leading system messages and pinned exchanges are not counted by the trigger and not given to
    the summarizer. The newest exchange stays in the view even if the summarizer returns a
    summary alone, and so does an unanswered question, and that of a turn which is divided
    between its tool calls. No wish of a summarizer to keep more stops a summary that is due; a
    view that stays over its trigger is warned of. A turn that saves each result with the next
    call, so that an exchange is always open, exceeds the trigger by a quarter at most.

    With `trigger_tokens` the view has at most about twice as many tokens, beside what must stay
    and the newest save, with a summarizer that halves its input: what a summary leaves may grow
    by a quarter of the limit where it has no headroom, before the next one is made.

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
        provider: ``"openai"``, ``"openai_responses"``, ``"anthropic"`` or ``"bedrock"``: the view
            is made valid for it, always in the same way
            (:func:`agent_memory.providers.repair`). None shows messages as they are: no exchange
            is split, but roles may not alternate.
        fallback: another summarizer that stands in when the first one fails, such as
            ``ExtractiveSummarizer()``.
        summarizer_timeout: seconds a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in its middle; None for no limit.
        max_head_tokens: pinned messages beyond it become ordinary, the oldest first; None for
            no limit.
        max_buffers: chats whose view is held in memory; the least recently used gives way.
        background: whether a save returns when it is durable, the summary being made behind it;
            a fetch then waits for none either. Work behind needs a loop that goes on running.
        hard_limit: in the background, a view of strictly more pairs of messages makes saves
            wait all the same; None for four times the trigger.
        max_concurrent_summaries: summarizers that work at the same moment, over all chats.
        drain_timeout: seconds that :meth:`aclose` waits for compactions under way; None for no
            limit.
        shared: whether a fetch first reads what other writers stored; None for what the
            store's `scope` suggests (yes for ``"host"`` and ``"network"``).
        on_summarizer_error: ``"log"``, or ``"raise"``: a save whose summary failed raises the
            ``SummarizerError`` after the message is stored.
        on_event: an async or plain function that is told of each :class:`~agent_memory.events.
            Event`; what it raises is logged.
        before_compaction: an async or plain function that is asked before a summarizer is, with
            a :class:`~agent_memory.events.CompactionRequest`; ``False`` vetoes.
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
        provider: Provider | None = None,
        fallback: Summarizer | None = None,
        summarizer_timeout: float | None = 60.0,
        max_summary_tokens: int | None = 8_000,
        max_head_tokens: int | None = None,
        max_buffers: int = 1_000,
        background: bool = False,
        hard_limit: int | None = None,
        max_concurrent_summaries: int = 16,
        drain_timeout: float | None = 30.0,
        shared: bool | None = None,
        on_summarizer_error: Literal["log", "raise"] = "log",
        on_event: Callable[[Event], object] | None = None,
        before_compaction: Callable[[CompactionRequest], object] | None = None,
        close_inner: bool = True,
    ) -> None:
        super().__init__(storage, close_inner=close_inner)
        # What a cancellation leaves of the inner append is read before the next answer.
        self._outlasts_cancellation = storage._outlasts_cancellation
        check_summarizer(summarizer, "summarizer")
        if fallback is not None:
            check_summarizer(fallback, "fallback")
        if on_summarizer_error not in ("log", "raise"):
            raise InvalidRequestError(
                f"on_summarizer_error must be 'log' or 'raise', not {on_summarizer_error!r}"
            )
        self._strict = on_summarizer_error == "raise"
        self._shared = shared
        trigger = Trigger(
            trigger_at=trigger_at, keep_last=keep_last, trigger_tokens=trigger_tokens
        )
        limits = Limits(
            max_buffers=max_buffers,
            summarizer_timeout=summarizer_timeout,
            max_summary_tokens=max_summary_tokens,
            max_head_tokens=max_head_tokens,
            max_concurrent_summaries=max_concurrent_summaries,
            hard_limit=hard_limit,
            drain_timeout=drain_timeout,
        )
        self._views = ChatViews(
            self,
            summarizer,
            fallback=fallback,
            trigger=trigger,
            limits=limits,
            counter=guarded(token_counter),
            hooks=Hooks(on_event, before_compaction),
            background=background,
            present=presenter(provider),
        )

    @property
    def buffered_chats(self) -> int:
        """How many chats' views are held in memory now."""
        return len(self._views)

    # -------------------------------------------------------------------------------- hooks

    async def _append(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        if not is_traced():
            return await self._append_untraced(key, entries)
        with span("save", key):
            return await self._append_untraced(key, entries)

    async def _append_untraced(self, key: ChatKey, entries: Sequence[Entry]) -> LogSlice:
        try:
            stored = await super()._append(key, entries)
        except BaseException:
            self._views.lost_answer(key)
            raise
        self._views.saved(key, stored)
        return stored

    async def _settled(self, key: ChatKey, stored: LogSlice) -> None:
        await super()._settled(key, stored)
        error = await self._views.settle(key)
        if error is not None and self._strict:
            raise stored_but(error) from error

    async def _forget(self, key: ChatKey, keep: int) -> int:
        try:
            return await super()._forget(key, keep)
        finally:
            self._views.forget(key)

    async def _fetch(self, key: ChatKey, limit: int | None) -> list[ConversationMessage]:
        if not is_traced():
            return await self._views.fetch(key, limit, check=self._is_shared)
        with span("fetch", key):
            return await self._views.fetch(key, limit, check=self._is_shared)

    async def _close(self) -> None:
        await self._views.close()
        await super()._close()

    @property
    def _is_shared(self) -> bool:
        return self.scope != "process" if self._shared is None else self._shared

    # -------------------------------------------------------------------- accounts and commands

    async def explain(self, user_id: str, session_id: str, agent_id: str) -> Explanation:
        """Say what the model sees of a chat, and of each raw message how it stands in that.

        It reads the whole log.
        """
        key = ChatKey(user_id, session_id, agent_id)
        await self._ready()
        shown = await self._fetch(key, None)
        log = (await self._read(key)).entries
        records = await self._records(key)
        view = self._views.held(key)
        head, reach = ((), 0) if view is None else (view.head, view.reach)
        held_back = () if view is None else {message.id for message in view.held_back}

        def work() -> Explanation:
            gone = retracted_ids(log)
            raw = LogSlice(log).messages
            return explain(
                key,
                shown,
                raw,
                records,
                head=head,
                reach=reach,
                held_back=held_back,
                retracted=gone,
            )

        return await asyncio.to_thread(work)  # the log may be long

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
        return await self._views.compact_now(key, check=self._is_shared)

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
            self._views.forget(key)

    async def _records(self, key: ChatKey) -> list[SummaryRecord]:
        summaries = self.summaries()
        return [] if summaries is None else await summaries.list_summaries(key)
