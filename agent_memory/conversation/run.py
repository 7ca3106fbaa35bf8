"""One run of a conversation: a turn of the agent, with its tool rounds."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

import attrs

from agent_memory.conversation.notes import RunNote
from agent_memory.conversation.occupancy import Occupancy
from agent_memory.conversation.run_summaries import RunSummaries
from agent_memory.conversation.thread_counts import ThreadCounts
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.records import Entry, LogSlice, Note
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.summarizing.buffers import Buffer
from agent_memory.storage.summarizing.summary_maker import OpenRun
from agent_memory.storage.summarizing.view_reader import ViewReader


class ConversationRun:
    """A turn of the agent: the user's message, tool rounds, the answer.

    Made by :meth:`~agent_memory.ConversationManager.start_run`. Used with ``async with`` it is
    saved at the end, also when the block is left by an error or a cancellation.

    A run belongs to one task; several runs of one thread may go on at once.
    """

    def __init__(
        self,
        storage: ChatStorage,
        open_run: OpenRun,
        *,
        buffer: Buffer,
        reader: ViewReader,
        summaries: RunSummaries,
        occupancy: Occupancy,
        counts: ThreadCounts | None,
        shared: bool,
    ) -> None:
        self._storage = storage
        self._run = open_run
        self._buffer = buffer
        self._reader = reader
        self._summaries = summaries
        self._occupancy = occupancy
        self._counts = counts
        self._shared = shared
        self._pending: list[ConversationMessage] = []
        self._usage = Usage()
        self._unnoted = Usage()
        self._notes: list[Note] = []
        self._noted_tokens = occupancy.tokens
        self._floor = 0 if buffer.view is None else buffer.view.floor

    def __repr__(self) -> str:
        return f"ConversationRun({self.id!r}, {self.key})"

    @property
    def id(self) -> str:
        """The run id that its messages carry."""
        return self._run.id

    @property
    def key(self) -> ChatKey:
        """Which chat it belongs to; a fork has a session of its own."""
        return self._buffer.key

    @property
    def context_tokens(self) -> int:
        """How full the model's context is, in tokens.

        The last prompt-and-reply total that the provider reported, and an estimate of everything
        added since. The thread's next run inherits it, also after a restart.
        """
        return self._occupancy.tokens

    @property
    def usage(self) -> Usage:
        """Everything this run has spent, summaries included."""
        return self._usage

    # ----------------------------------------------------------------------------- producing

    def add(
        self,
        messages: ConversationMessage | Iterable[ConversationMessage],
        *,
        measured: bool = False,
    ) -> None:
        """Add what the run has produced; it is stored by :meth:`messages` or :meth:`save`.

        Args:
            messages: one or several. They get this run's id.
            measured: whether the last reported usage covers them already, as it does a reply.

        Raises:
            InvalidRequestError: something is no message, or carries another run's id.
        """
        listed = [messages] if isinstance(messages, ConversationMessage) else list(messages)
        added = [self._own(message) for message in listed]
        self._pending += added
        if not measured:
            self._occupancy.add(added)

    def _own(self, message: object) -> ConversationMessage:
        if not isinstance(message, ConversationMessage):
            raise InvalidRequestError(
                f"a run takes ConversationMessages, not {type(message).__name__}"
            )
        if message.run_id not in (None, self.id):
            raise InvalidRequestError(
                f"message {message.id!r} belongs to the run {message.run_id!r}, not {self.id!r}"
            )
        return attrs.evolve(message, run_id=self.id)

    def record_usage(self, usage: Usage) -> None:
        """Take over what the provider reported for a request of this run.

        It is billed, and the context now holds its prompt and its reply: add the reply with
        ``measured=True``.
        """
        self.record_auxiliary_usage(usage)
        self._occupancy.report(usage)

    def record_auxiliary_usage(self, usage: Usage) -> None:
        """Bill usage that leaves the context as it is, such as a classifier's.

        Raises:
            InvalidRequestError: it is no ``Usage``.
        """
        if not isinstance(usage, Usage):
            raise InvalidRequestError(f"usage must be a Usage, not {type(usage).__name__}")
        self._usage += usage
        self._unnoted += usage

    # ------------------------------------------------------------------------------- reading

    async def messages(self) -> list[ConversationMessage]:
        """Return what the model should see now, as a fresh list.

        What is pending is stored first: nothing reaches a model that is not in the store. Then
        the summarizer may be asked; it is given everything, and what it says is applied to what
        lies before this run. If it fails, the view stays whole.

        Raises:
            StorageError: the pending messages could not be stored.
            SummarizerError: with ``on_summarizer_error="raise"``, after they are stored.
        """
        await self._store(self._pending, [])
        await self._reader.current(self._buffer, check=self._shared)
        self._bill(await self._summaries.ask(self._buffer, self._run, self._occupancy))
        self._summaries.raise_failure()
        view = await self._reader.current(self._buffer, check=False)
        return view.newest(None)

    def _bill(self, usage: Usage | None) -> None:
        if usage is not None:
            self.record_auxiliary_usage(usage)

    # -------------------------------------------------------------------------------- saving

    async def save(self) -> None:
        """Store what is pending and the run's account; may be called again for what is new.

        Raises:
            StorageError: it could not be stored; calling again is safe.
        """
        if self._pending or self._unnoted != Usage() or self.context_tokens != self._noted_tokens:
            self._notes.append(self._note().to_note())
            self._unnoted = Usage()
            self._noted_tokens = self.context_tokens
        await self._store(self._pending, self._notes)

    def _note(self) -> RunNote:
        counts = self._counts and attrs.evolve(self._counts)
        if counts is not None:
            counts.add(self._pending)
        return RunNote(
            run_id=self.id,
            usage=self._unnoted,
            context_tokens=self.context_tokens,
            runs=None if counts is None else counts.runs,
            messages=None if counts is None else counts.messages,
            floor=self._floor,
        )

    async def _store(self, messages: list[ConversationMessage], notes: list[Note]) -> None:
        """Store in one step, and take out of these lists what is stored; more may come to them."""
        entries: list[Entry] = [*messages, *notes]
        of_messages = len(messages)
        if not entries:
            return
        await self._storage._ready()
        try:
            stored = await self._storage._save(self.key, entries)
        except BaseException:
            self._buffer.mark_stale()
            raise
        del messages[:of_messages], notes[: len(entries) - of_messages]
        self._take_over(stored)

    def _take_over(self, stored: LogSlice) -> None:
        view = self._buffer.view
        expected = 0 if view is None else view.last + 1
        self._floor = stored.floor
        self._buffer.saved(stored)
        if stored.entries and stored.entries[0].position != expected:
            self._counts = None  # others write to the thread: what we counted is not all
        if self._counts is not None:
            self._counts.add(stored.entries)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.save()
