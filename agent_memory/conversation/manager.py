"""Conversations as an agent loop drives them: :class:`ConversationManager`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal

from agent_memory.conversation.branching import fork
from agent_memory.conversation.notes import RunNote, read_note, total_usage
from agent_memory.conversation.occupancy import Occupancy
from agent_memory.conversation.run import ConversationRun
from agent_memory.conversation.run_summaries import RunSummaries
from agent_memory.conversation.thread_counts import ThreadCounts
from agent_memory.conversation.threads import ThreadInfo, list_threads
from agent_memory.errors import InvalidRequestError
from agent_memory.events import CompactionRequest, Event
from agent_memory.ids import check_id, new_id
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.records import LogSlice
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summarizing import SummarizingChatStorage
from agent_memory.storage.summarizing.buffers import Buffer
from agent_memory.storage.summarizing.hooks import Hooks
from agent_memory.storage.summarizing.policy import Limits, Trigger
from agent_memory.storage.summarizing.summary_installer import SummaryInstaller
from agent_memory.storage.summarizing.summary_maker import OpenRun, SummaryMaker
from agent_memory.storage.summarizing.view_reader import ViewReader
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.summarizers.base import Summarizer, SummarizerObject, check_summarizer
from agent_memory.tokens import TokenCounter, guarded
from agent_memory.view import ChatView

_RECENT: Final = 64  # entries read to find the note of the run before


class ConversationManager:
    """Runs over any store: what the model should see, how full its context is, what it cost.

    Args:
        storage: any store but a ``SummarizingChatStorage``: the manager summarizes itself.
        summarizer: an object with ``summarize``, which decides itself by the context's tokens
            (:class:`~agent_memory.LLMSummarizer`), or a function ``(history, keep_last)``,
            asked when a view exceeds `trigger_at`; None for no summaries.
        trigger_at: for a function: pairs of messages a view may have.
        keep_last: for a function: pairs of messages it is asked to keep.
        token_counter: estimates tokens; by default a heuristic that errs high.
        fallback: another summarizer that stands in when the first one fails.
        summarizer_timeout: seconds a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in its middle; None for no limit.
        on_summarizer_error: ``"log"``, or ``"raise"``: ``run.messages()`` raises after the
            messages are stored.
        on_event: told of each :class:`~agent_memory.events.Event`.
        before_compaction: asked before the summarizer is; ``False`` vetoes.
        shared: whether ``run.messages()`` first reads what other writers stored; None for what
            the store's `scope` suggests.

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
        token_counter: TokenCounter | None = None,
        fallback: Summarizer | None = None,
        summarizer_timeout: float | None = 60.0,
        max_summary_tokens: int | None = 8_000,
        on_summarizer_error: Literal["log", "raise"] = "log",
        on_event: Callable[[Event], object] | None = None,
        before_compaction: Callable[[CompactionRequest], object] | None = None,
        shared: bool | None = None,
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
        self._hooks = Hooks(on_event, before_compaction)
        self._strict = on_summarizer_error == "raise"
        self._shared = storage.scope != "process" if shared is None else shared
        self._trigger = Trigger(trigger_at=trigger_at, keep_last=keep_last)
        self._decides = isinstance(summarizer, SummarizerObject)
        limits = Limits(
            summarizer_timeout=summarizer_timeout, max_summary_tokens=max_summary_tokens
        )
        lock = threading.RLock()
        self._reader = ViewReader(storage, lock, None, None)
        self._installer = SummaryInstaller(storage, lock, self._reader, self._trigger)
        self._maker = SummaryMaker(
            summarizer or _keep_all, fallback, self._trigger, limits, self._counter
        )

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
        run = new_id() if run_id is None else check_id(run_id, "run_id")
        if after_run_id is not None:
            key = await fork(self._storage, key, after_run_id, fork_session_id or new_id())
        await self._storage._ready()
        buffer = Buffer(key)
        view = await self._reader.current(buffer, check=False)
        recent = await self._storage._read(key, last=_RECENT)
        return ConversationRun(
            self._storage,
            OpenRun(run, view.last),
            buffer=buffer,
            reader=self._reader,
            summaries=self._summaries(),
            occupancy=await self._occupancy(key, view, recent),
            counts=_counts(recent),
            shared=self._shared,
        )

    def _summaries(self) -> RunSummaries:
        return RunSummaries(
            self._maker,
            self._installer,
            trigger=None if self._decides else self._trigger,
            counter=self._counter,
            hooks=self._hooks,
            strict=self._strict,
        )

    async def _occupancy(self, key: ChatKey, view: ChatView, recent: LogSlice) -> Occupancy:
        """Return what the run before left, or what the view itself tells."""
        found = _newest_note(recent)
        if found is None:
            occupancy = Occupancy(self._counter)
            for message in view.newest(None):
                occupancy.add([message])
                if message.usage is not None and (message.position or 0) > view.reach:
                    occupancy.report(message.usage)
            return occupancy
        index, note = found
        occupancy = Occupancy(self._counter, note.context_tokens)
        record = await self._reader.newest_record(key)
        if record is not None and record.created_at > recent.entries[index].timestamp:
            occupancy.summarize(record.tokens_before, record.tokens_after)
        occupancy.add(LogSlice(recent.entries[index + 1 :]).messages)
        return occupancy

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


def _newest_note(recent: LogSlice) -> tuple[int, RunNote] | None:
    for index in range(len(recent.entries) - 1, -1, -1):
        note = read_note(recent.entries[index])
        if note is not None:
            return index, note
    return None


def _counts(recent: LogSlice) -> ThreadCounts | None:
    if len(recent.entries) < _RECENT:  # this is the whole log
        counts = ThreadCounts()
        counts.add(recent.entries)
        return counts
    return ThreadCounts.since_note(recent.entries, recent.floor)


def _keep_all(history: list[ConversationMessage], keep_last: int) -> list[ConversationMessage]:
    _ = keep_last
    return history


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
