"""Conversations as an agent loop drives them: :class:`ConversationManager`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Literal

from agent_memory.conversation.branching import fork
from agent_memory.conversation.notes import counts_since_note, newest_note, total_usage
from agent_memory.conversation.occupancy import inherited
from agent_memory.conversation.pacing import Paces
from agent_memory.conversation.run import ConversationRun, MakeSummaries
from agent_memory.conversation.run_log import RunLog
from agent_memory.conversation.run_summaries import RunSummaries, Summarizing
from agent_memory.conversation.thread_counts import ThreadCounts
from agent_memory.conversation.threads import ThreadInfo, list_threads
from agent_memory.errors import InvalidRequestError
from agent_memory.events import CompactionRequest, Event
from agent_memory.keys import check_id, new_id
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.providers import Provider, repair
from agent_memory.records import LogSlice, SummaryRecord
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.summarizers.base import Summarizer, SummarizerObject, check_summarizer
from agent_memory.summarizing import SummarizingChatStorage
from agent_memory.summarizing.buffers import Buffer
from agent_memory.summarizing.compaction import OpenRun
from agent_memory.summarizing.draft import SummaryMaker
from agent_memory.summarizing.hooks import Hooks
from agent_memory.summarizing.loader import ViewReader
from agent_memory.summarizing.options import Limits, Trigger
from agent_memory.summarizing.summary_installer import SummaryInstaller
from agent_memory.summarizing.view import ChatView
from agent_memory.tokens import TokenCounter, guarded

_RECENT: Final = 64  # entries read to find the note of the run before
_MOST_PACES: Final = 1_000  # threads whose attempts are remembered


class ConversationManager:
    """Runs over any store: what the model should see, how full its context is, what it cost.

    Args:
        storage: any store but a ``SummarizingChatStorage``: the manager summarizes itself.
        summarizer: an object with ``summarize`` (such as :class:`~agent_memory.LLMSummarizer`),
            asked when the context exceeds `trigger_tokens`, or a function ``(history,
            keep_last)``, asked when a view exceeds `trigger_at` too; None for no summaries.
        trigger_at: for a function: pairs of messages a view may have (at least 2). Without a
            limit of tokens also how many pairs a run in progress may have before it is divided.
        keep_last: pairs of messages that a function is asked to keep (at least 1, below
            `trigger_at`), and the least that is kept of a run that is divided.
        trigger_tokens: how many tokens the context may hold, tools and system prompt included;
            by default the `token_threshold` of the summarizer, if it has one above 0. Without
            either an object decides itself, and is asked as the thread grows.
        token_counter: estimates tokens; by default a heuristic that errs high.
        fallback: another summarizer that stands in when the first one fails.
        summarizer_timeout: seconds a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in its middle; None for no limit.
        max_head_tokens: pinned messages beyond it become ordinary, the oldest first; None for
            no limit.
        on_summarizer_error: ``"log"``, or ``"raise"``: ``run.messages()`` raises after the
            messages are stored.
        on_event: told of each :class:`~agent_memory.events.Event`.
        before_compaction: asked before the summarizer is; ``False`` vetoes.
        provider: ``"openai"``, ``"openai_responses"``, ``"anthropic"`` or ``"bedrock"``:
            ``run.messages()`` gives what this provider accepts, see
            :func:`~agent_memory.providers.repair`; None for the messages as they are.
        shared: whether ``run.messages()`` first reads what other writers stored, other runs of
            the thread in this process among them.

    Raises:
        InvalidRequestError: an argument is none of what is said above.
    """

    def __init__(
        self,
        storage: ChatStorage,
        summarizer: Summarizer | None = None,
        *,
        trigger_at: int = 20,
        keep_last: int = 2,
        trigger_tokens: int | None = None,
        token_counter: TokenCounter | None = None,
        fallback: Summarizer | None = None,
        summarizer_timeout: float | None = 60.0,
        max_summary_tokens: int | None = 8_000,
        max_head_tokens: int | None = None,
        on_summarizer_error: Literal["log", "raise"] = "log",
        on_event: Callable[[Event], object] | None = None,
        before_compaction: Callable[[CompactionRequest], object] | None = None,
        provider: Provider | None = None,
        shared: bool = True,
    ) -> None:
        _check_storage(storage)
        if on_summarizer_error not in ("log", "raise"):
            raise InvalidRequestError(
                f"on_summarizer_error must be 'log' or 'raise', not {on_summarizer_error!r}"
            )
        for name, given in (("summarizer", summarizer), ("fallback", fallback)):
            if given is not None:
                check_summarizer(given, name)
        self._storage = storage
        self._counter = guarded(token_counter)
        self._strict = on_summarizer_error == "raise"
        self._shared = shared
        self._paces = Paces(_MOST_PACES)
        hooks = Hooks(on_event, before_compaction)
        if trigger_tokens is None:
            threshold = getattr(summarizer, "token_threshold", None)
            trigger_tokens = threshold if type(threshold) is int and threshold > 0 else None
        trigger = Trigger(
            trigger_at=trigger_at, keep_last=keep_last, trigger_tokens=trigger_tokens
        )
        limits = Limits(
            summarizer_timeout=summarizer_timeout,
            max_summary_tokens=max_summary_tokens,
            max_head_tokens=max_head_tokens,
        )
        self._lock = threading.RLock()
        present = None if provider is None else _repairing(provider)
        self._reader = ViewReader(storage, self._lock, None, present)
        self._tools: Summarizing | None = None
        if summarizer is not None:
            maker = SummaryMaker(summarizer, fallback, trigger, limits, self._counter)
            decides = isinstance(summarizer, SummarizerObject)
            self._tools = self._made_with(maker, trigger, hooks, decides=decides)

    def _made_with(
        self, maker: SummaryMaker, trigger: Trigger, hooks: Hooks, *, decides: bool
    ) -> Summarizing:
        installer = SummaryInstaller(self._storage, self._lock, self._reader)
        return Summarizing(maker, installer, self._reader, trigger, decides, hooks)

    @property
    def storage(self) -> ChatStorage:
        """The store; closing it is up to who made it."""
        return self._storage

    # ---------------------------------------------------------------------------------- runs

    async def start_run(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        *,
        run_id: str | None = None,
        after_run_id: str | None = None,
        fork_session_id: str | None = None,
    ) -> ConversationRun:
        """Load a thread and begin a run of it.

        Args:
            user_id, session_id, agent_id: which thread.
            run_id: names the run; by default a new id.
            after_run_id: go on after this run. If it is not the newest, the thread forks: the
                messages up to its end are copied into a session of their own, which the run's
                `key` names; the thread and its summaries stay as they are.
            fork_session_id: the session id of the fork; by default a new id.

        Raises:
            InvalidRequestError: an id is none, or the thread has no run `after_run_id`.
        """
        key = ChatKey(user_id, session_id, agent_id)
        run_id = new_id() if run_id is None else check_id(run_id, "run_id")
        if after_run_id is not None:
            key = await fork(self._storage, key, after_run_id, fork_session_id or new_id())
        await self._storage._ready()
        buffer = Buffer(key)
        recent = await self._load(buffer)
        view = await self._reader.current(buffer, check=False)
        run = OpenRun(run_id, _start_of(view, run_id))
        records = await self._records(key, view, recent)
        counts = _counts(view, recent)
        return ConversationRun(
            run_id,
            buffer,
            RunLog(self._storage, self._reader, buffer, counts, shared=self._shared),
            inherited(self._counter, view, recent, records),
            self._summaries_of(key, run, records),
            strict=self._strict,
        )

    async def _load(self, buffer: Buffer) -> LogSlice:
        """Load the view, and return the newest entries of the log."""
        await self._reader.current(buffer, check=False)
        recent = await self._storage._read(buffer.key, last=_RECENT)
        buffer.saved(recent)  # it may be newer than the view
        return recent

    def _summaries_of(
        self, key: ChatKey, run: OpenRun, records: Sequence[SummaryRecord]
    ) -> MakeSummaries | None:
        tools = self._tools
        if tools is None:
            return None
        record = records[-1] if records else None
        return lambda bill: RunSummaries(tools, run, self._paces.of(key), record, bill)

    async def _records(
        self, key: ChatKey, view: ChatView, recent: LogSlice
    ) -> list[SummaryRecord]:
        """Return the records since the newest note, or all, up to the one that is shown."""
        summaries = self._storage.summaries()
        newest = await self._reader.newest_record(key) if view.record_id else None
        if summaries is None or newest is None:
            return []
        noted = newest_note(recent.entries)
        known = None if noted is None else noted[1].record_id
        if newest.id == view.record_id and (newest.replaces is None or newest.id == known):
            return [newest]
        records = await summaries.list_summaries(key)
        shown = [index for index, record in enumerate(records) if record.id == view.record_id]
        return records[: shown[-1] + 1] if shown else []

    # ---------------------------------------------------------------------------- looking back

    async def load_transcript(
        self, user_id: str, session_id: str, agent_id: str
    ) -> list[ConversationMessage]:
        """Return the thread exactly as it was written, no summary standing in for anything."""
        found = self.iter_transcript(user_id, session_id, agent_id)
        return [message async for message in found]

    def iter_transcript(
        self, user_id: str, session_id: str, agent_id: str
    ) -> AsyncIterator[ConversationMessage]:
        """Yield what :meth:`load_transcript` returns, a page at a time."""
        return self._storage.iter_chat(user_id, session_id, agent_id)

    async def list_threads(
        self, user_id: str | None = None, *, limit: int | None = None
    ) -> list[ThreadInfo]:
        """Return the threads, of one user or of all, the most recently written first.

        Args:
            user_id: whose; None for everybody's.
            limit: at most so many; None for all.

        Raises:
            InvalidRequestError: `limit` is negative or no int.
        """
        return await list_threads(self._storage, user_id, limit)

    async def usage(
        self, user_id: str, session_id: str | None = None, agent_id: str | None = None
    ) -> Usage:
        """Add up what the saved runs of a user, a session or a thread spent.

        It reads their logs.
        """
        total = Usage()
        async for info in self._storage.list_chats(user_id, session_id):
            if agent_id in (None, info.key.agent_id):
                key = info.key
                log = self._storage.iter_log(key.user_id, key.session_id, key.agent_id)
                total += total_usage([entry async for entry in log])
        return total


def _repairing(
    provider: Provider,
) -> Callable[[list[ConversationMessage]], list[ConversationMessage]]:
    repair([], provider)  # an unknown provider is told at once
    return lambda messages: repair(messages, provider)


def _start_of(view: ChatView, run_id: str) -> int:
    """Return the position before a run: that of its block if the log ends with it already.

    A summary may stand for a part of the run; its question is then verbatim in the view.
    """
    start = view.last
    raw = [message for message in view.block if message.position is not None]
    for message in reversed((*raw, *view.tail)):
        if message.run_id != run_id:
            break
        start = (message.position or 1) - 1
    return start


def _counts(view: ChatView, recent: LogSlice) -> ThreadCounts | None:
    if len(recent.entries) < _RECENT:  # this is the whole log
        return ThreadCounts().and_also(recent.entries)
    counts = counts_since_note(recent.entries, recent.floor)
    if counts is None and view.reach == view.floor:  # nothing is summarized: it shows all
        counts = ThreadCounts().and_also(view.tail)
    return counts


def _check_storage(storage: object) -> None:
    inner = storage
    while isinstance(inner, WrapperChatStorage):
        if isinstance(inner, SummarizingChatStorage):
            raise InvalidRequestError(
                "ConversationManager summarizes itself; pass the store that "
                "SummarizingChatStorage wraps (its .inner), and its summarizer to the manager"
            )
        inner = inner.inner
    if not isinstance(inner, ChatStorage):
        raise InvalidRequestError(f"storage must be a ChatStorage, not {type(inner).__name__}")
