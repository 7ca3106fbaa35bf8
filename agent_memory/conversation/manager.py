"""Conversations as an agent loop drives them: :class:`ConversationManager`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Unpack

from agent_memory.conversation.branching import fork
from agent_memory.conversation.context_size import inherited
from agent_memory.conversation.run import ConversationRun
from agent_memory.conversation.run_notes import (
    ThreadCounts,
    counts_since_note,
    run_notes,
    total_usage,
)
from agent_memory.conversation.threads import ThreadInfo, list_threads
from agent_memory.errors import InvalidRequestError
from agent_memory.events import Event
from agent_memory.keys import check_id, new_id
from agent_memory.log import LogSlice, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.providers import Provider
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.summarizers.base import Summarizer, check_summarizer
from agent_memory.summarizing.buffers import Attempts, Buffer, Buffers
from agent_memory.summarizing.compaction import OpenRun
from agent_memory.summarizing.compactor import Compactor
from agent_memory.summarizing.loader import ViewLoader
from agent_memory.summarizing.options import (
    DEFAULT_KEEP_LAST,
    DEFAULT_TRIGGER_AT,
    ManagerOptions,
    SummarizingOptions,
    combine_options,
)
from agent_memory.summarizing.storage import SummarizingChatStorage
from agent_memory.summarizing.view import ChatView
from agent_memory.tokens import guarded

_RECENT: Final = 64  # entries read to find the note of the run before


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
        provider: ``"openai"``, ``"openai_responses"``, ``"anthropic"`` or ``"bedrock"``:
            ``run.messages()`` gives what this provider accepts, see
            :func:`~agent_memory.providers.repair`; None for the messages as they are.
        fallback: another summarizer, asked when the first one fails.
        on_event: an async or plain function, called with each
            :class:`~agent_memory.events.Event`.
        options: all options in one value; those given by name take precedence.
        others: any other option of :class:`~agent_memory.summarizing.SummarizingOptions`. `shared`
            says whether ``run.messages()`` first reads what other writers stored, other runs of
            the thread in this process among them; by default it does.

    Raises:
        InvalidRequestError: an argument is out of its range or of another type.
    """

    def __init__(
        self,
        storage: ChatStorage,
        summarizer: Summarizer | None = None,
        *,
        trigger_at: int = DEFAULT_TRIGGER_AT,
        keep_last: int = DEFAULT_KEEP_LAST,
        trigger_tokens: int | None = None,
        provider: Provider | None = None,
        fallback: Summarizer | None = None,
        on_event: Callable[[Event], object] | None = None,
        options: SummarizingOptions | None = None,
        **others: Unpack[ManagerOptions],
    ) -> None:
        _check_storage(storage)
        if summarizer is not None:
            check_summarizer(summarizer, "summarizer")
        if trigger_tokens is None and (options is None or options.trigger_tokens is None):
            threshold = getattr(summarizer, "token_threshold", None)
            trigger_tokens = threshold if type(threshold) is int and threshold > 0 else None
        named = {
            "trigger_at": trigger_at,
            "keep_last": keep_last,
            "trigger_tokens": trigger_tokens,
            "provider": provider,
            "fallback": fallback,
            "on_event": on_event,
        }
        self._storage = storage
        self._options = options = combine_options(options, named, others, allowed=ManagerOptions)
        self._counter = guarded(options.token_counter)
        # Of each thread it holds what its runs know of each other's attempts, and no view.
        self._threads = Buffers(options.max_buffers)
        self._loader = ViewLoader(storage, self._threads.lock, None, options.presenter())
        self._compactor: Compactor | None = None
        if summarizer is not None:
            self._compactor = Compactor(
                storage,
                self._loader,
                self._threads,
                summarizer,
                options=options,
                counter=self._counter,
            )

    @property
    def storage(self) -> ChatStorage:
        """The store; closing it is up to the caller."""
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
            InvalidRequestError: an id is invalid, or the thread has no run `after_run_id`.
        """
        key = ChatKey(user_id, session_id, agent_id)
        run_id = new_id() if run_id is None else check_id(run_id, "run_id")
        if after_run_id is not None:
            key = await fork(self._storage, key, after_run_id, fork_session_id or new_id())
        attempts = self._threads.get_or_add(key)[0].attempts
        buffer = Buffer(key, attempts=attempts, shares_attempts=True)
        recent = await self._load(buffer)
        view = await self._loader.current(buffer, check=False)
        records = await self._records(key, view, recent)
        record = records[-1] if records else None
        if self._compactor is not None and record is not None:
            self._wait_after(attempts, record)
        return ConversationRun(
            OpenRun(run_id, _start_of(view, run_id)),
            buffer,
            inherited(self._counter, view, recent, records),
            storage=self._storage,
            loader=self._loader,
            compactor=self._compactor,
            options=self._options,
            counts=_counts(view, recent),
            record_id=None if record is None else record.id,
        )

    async def _load(self, buffer: Buffer) -> LogSlice:
        """Load the view, and return the newest entries of the log."""
        await self._loader.current(buffer, check=False)
        key = buffer.key
        recent = await self._storage.read_log(
            key.user_id, key.session_id, key.agent_id, last=_RECENT
        )
        buffer.saved(recent)  # it may be newer than the view
        return recent

    def _wait_after(self, attempts: Attempts, record: SummaryRecord) -> None:
        """Have the thread grow after a summary that this process did not make itself."""
        with self._threads.lock:
            if attempts.record_id != record.id:
                attempts.record_id = record.id
                attempts.cooldown.summarized_run(record, self._options)

    async def _records(
        self, key: ChatKey, view: ChatView, recent: LogSlice
    ) -> list[SummaryRecord]:
        """Return the records since the newest note, or all, up to the one that is shown."""
        summaries = self._storage.summaries()
        newest = await self._loader.newest_record(key) if view.record_id else None
        if summaries is None or newest is None:
            return []
        noted = next(run_notes(recent.entries), None)
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
            user_id: the user; None for all users.
            limit: the most threads to return; None for all.

        Raises:
            InvalidRequestError: `limit` is negative or not an int.
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


def _start_of(view: ChatView, run_id: str) -> int:
    """Return the position before a run: that of its block if the log ends with it already.

    A summary may stand for a part of the run; its question is then verbatim in the view.
    """
    start = view.last
    raw = [message for message in view.summary if message.position is not None]
    for message in reversed((*raw, *view.tail)):
        if message.run_id != run_id:
            break
        start = (message.position or 1) - 1
    return start


def _counts(view: ChatView, recent: LogSlice) -> ThreadCounts | None:
    if len(recent.entries) < _RECENT:  # this is the whole log
        return ThreadCounts().plus(recent.entries)
    counts = counts_since_note(recent.entries, recent.floor)
    if (
        counts is None and view.covered_through == view.floor
    ):  # nothing is summarized: it shows all
        counts = ThreadCounts().plus(view.tail)
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
