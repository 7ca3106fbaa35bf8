"""One run of a conversation: a turn of the agent, with its tool rounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextvars import ContextVar
from itertools import takewhile
from types import TracebackType
from typing import Final, Self, cast

import attrs

from agent_memory.conversation.context_size import ContextSize
from agent_memory.conversation.run_notes import RunNote, ThreadCounts
from agent_memory.errors import InvalidRequestError
from agent_memory.log import Entry, Note, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizing.buffers import Buffer
from agent_memory.summarizing.compaction import OpenRun
from agent_memory.summarizing.compactor import Compactor, stored_but
from agent_memory.summarizing.draft import RunContext
from agent_memory.summarizing.loader import ViewLoader
from agent_memory.summarizing.options import SummarizingOptions
from agent_memory.summarizing.view import ChatView

_log = logging.getLogger(__name__)

# The run and the version of its context that were last shown to this task: tasks may share a
# run, and one may have it summarized while another one's request is under way.
_shown: Final[ContextVar[tuple[str, int] | None]] = ContextVar("agent_memory_shown", default=None)


class ConversationRun:
    """A turn of the agent: the user's message, tool rounds, the answer.

    Made by :meth:`~agent_memory.ConversationManager.start_run`. Used with ``async with`` it is
    saved at the end, also when the block is left by an error or a cancellation.

    Tasks of one event loop may share a run. Several runs of one thread may go on at once.
    """

    def __init__(
        self,
        run: OpenRun,
        buffer: Buffer,
        context: ContextSize,
        *,
        storage: ChatStorage,
        loader: ViewLoader,
        compactor: Compactor | None,
        options: SummarizingOptions,
        counts: ThreadCounts | None,
        record_id: str | None,
    ) -> None:
        self._run = run
        self._buffer = buffer
        self._context = context
        self._storage = storage
        self._loader = loader
        self._compactor = compactor
        self._options = options
        self._counts = counts  # of the thread up to `_counted`; None if they are not known
        self._record_id = record_id
        self._pending: list[ConversationMessage] = []
        self._notes: list[Note] = []
        self._added: dict[str, ConversationMessage] = {}
        self._usage = self._unnoted = Usage()
        self._noted_tokens: int = context.tokens
        self._storing, self._asking = asyncio.Lock(), asyncio.Lock()
        view = buffer.view or ChatView()
        self._counted = view.last
        self._version = view.floor, buffer.generation
        self._loaded = {message.id for message in (*view.head, *view.tail)}

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
        return self._context.tokens

    @property
    def usage(self) -> Usage:
        """Everything this run has spent, summaries included."""
        return self._usage

    @property
    def pending(self) -> tuple[ConversationMessage, ...]:
        """What has been added and is not stored yet."""
        return tuple(self._pending)

    # ----------------------------------------------------------------------------- producing

    def add(
        self,
        messages: ConversationMessage | Iterable[ConversationMessage],
        *,
        measured: bool = False,
    ) -> None:
        """Add what the run has produced; it is stored by :meth:`messages` or :meth:`save`.

        Args:
            messages: one or several. They get this run's id. One that was added before is
                passed over.
            measured: whether the last reported usage covers them already, as it does a reply.

        Raises:
            InvalidRequestError: an item is not a message, carries another run's id, or was added
                before with another role, content or extra. Then none of them is added.
        """
        added: dict[str, ConversationMessage] = {}
        for message in _each(messages):
            own = self._own(message, self._added | added)
            if own is not None:
                added[own.id] = own
        self._added |= added
        self._pending += added.values()
        new = [message for message in added.values() if message.id not in self._loaded]
        self._context.add(new, measured=measured)

    def _own(
        self, message: object, added: dict[str, ConversationMessage]
    ) -> ConversationMessage | None:
        """The message as this run's; None if it was added before."""
        if not isinstance(message, ConversationMessage):
            raise InvalidRequestError(
                f"a run takes ConversationMessages, not {type(message).__name__}"
            )
        if message.run_id not in (None, self.id):
            raise InvalidRequestError(
                f"message {message.id!r} belongs to the run {message.run_id!r}, not {self.id!r}"
            )
        known = added.get(message.id)
        if known is None:
            return attrs.evolve(message, run_id=self.id)
        if not known.same_payload(message):
            raise InvalidRequestError(
                f"message {message.id!r} was added before with another role, content or extra; "
                "give a changed message a new id"
            )
        return None

    def withdraw(self, message_id: str) -> None:
        """Take back a message that is not stored yet, such as one the store refuses.

        Raises:
            InvalidRequestError: it is stored, or was never added.
        """
        for message in self._pending:
            if message.id == message_id:
                self._pending.remove(message)
                del self._added[message_id]
                if message_id not in self._loaded:
                    self._context.remove(message)
                return
        raise InvalidRequestError(f"message {message_id!r} is not pending: see run.pending")

    def record_usage(self, usage: Usage) -> None:
        """Take over what the provider reported for a request of this run.

        It is billed, and the context now holds its prompt and its reply: add the reply with
        ``measured=True``. A report without input tokens says nothing about the context, nor does
        one on a view that has been summarized since; its estimate then stays.

        Raises:
            InvalidRequestError: it is not a ``Usage``.
        """
        self.record_auxiliary_usage(usage)
        run_id, version = _shown.get() or (None, None)
        if not self._context.report(usage, version=version if run_id == self.id else None):
            _shown.set(None)  # the next report may be of a view that another task was shown

    def record_auxiliary_usage(self, usage: Usage) -> None:
        """Bill usage that leaves the context as it is, such as a classifier's.

        Raises:
            InvalidRequestError: it is not a ``Usage``.
        """
        _check_usage(usage)
        self._usage += usage
        self._unnoted += usage

    # ------------------------------------------------------------------------------- reading

    async def messages(self) -> list[ConversationMessage]:
        """Return what the model should see now, as a fresh list.

        What is pending is stored first: nothing reaches a model that is not in the store. Then
        the summarizer may be asked; it is given everything, and what it says is applied to what
        lies before this run. If it fails, the view stays whole.

        Raises:
            StorageError: the pending messages could not be stored, or the log not be read.
            SummarizerError: with ``on_summarizer_error="raise"``, after they are stored.
        """
        await self._store()
        async with self._asking:
            self._look_at(await self._view(check=self._options.shared is not False))
            failure = await self._summarize()
            if failure is not None and self._options.on_summarizer_error == "raise":
                raise stored_but(failure) from failure
            view = await self._view(check=False)
            # What a summary of others' replaced is still counted; see `_take_over`.
            self._version = self._version[0], self._buffer.generation
            self._look_at(view)
            _shown.set((self.id, self._context.version))
            return view.newest(None)

    async def _view(self, *, check: bool) -> ChatView:
        return await self._loader.current(self._buffer, check=check)

    async def _summarize(self) -> Exception | None:
        """Have the older part of the view summarized if it is time; return what failed."""
        if self._compactor is None:
            return None
        await self._take_over()
        context = RunContext(
            run=self._run,
            tokens=self._context.tokens,
            bill=self.record_auxiliary_usage,
            summarized=self._summarized,
        )
        return await self._compactor.summarize_run(self._buffer, context)

    async def _take_over(self) -> None:
        """Show the summary that another run of the thread has made since."""
        installed = self._buffer.attempts.record_id
        if installed in (None, self._record_id):
            return
        self._record_id = installed
        view = await self._loader.reload(self._buffer, self._buffer.view)
        record = await self._loader.newest_record(self.key)
        if record is not None and record.id == view.record_id:
            self._context.summarize(record)

    def _summarized(self, record: SummaryRecord) -> int:
        self._record_id = record.id
        self._context.summarize(record)
        return self._context.tokens

    def _look_at(self, view: ChatView) -> None:
        """Count what has come to the view; all of it, if something was removed or retracted."""
        if not self._count(view):
            shown = (*view.head, *view.summary, *view.tail)
            self._context.start_over([*shown, *self._pending])
            self._counts, self._counted = None, view.last
            self._version = view.floor, self._buffer.generation

    def _count(self, view: ChatView) -> bool:
        """Count what has come to the view, ours and others'; False if it was loaded again."""
        if (view.floor, self._buffer.generation) != self._version:
            return False
        new = list(takewhile(lambda m: (m.position or 0) > self._counted, reversed(view.tail)))
        if view.covered_through > self._counted:
            self._counts = None  # others' messages are covered that were never seen here
        if self._counts is not None:
            self._counts = self._counts.plus(reversed(new))
        self._context.add([message for message in new if message.id not in self._added])
        self._counted = view.last
        return True

    # -------------------------------------------------------------------------------- saving

    async def save(self) -> None:
        """Store what is pending, and a note of what the run cost; may be called again.

        Raises:
            StorageError: it could not be stored; calling again is safe.
        """
        await self._store(with_note=True)
        if self._compactor is not None:
            await self._compactor.write_unsaved(self._buffer)

    async def _store(self, *, with_note: bool = False) -> None:
        """Store in one step what is pending, and a note behind it if there is something to note.

        What comes while this goes on stays pending. When it fails, everything stays pending.
        """
        async with self._storing:  # in the order in which it was added, whichever task stores
            if with_note:
                self._append_note()
            entries: list[Entry] = [*self._pending, *self._notes]
            if not entries:
                return
            key = self.key
            try:
                stored = await self._storage.append(
                    key.user_id, key.session_id, key.agent_id, entries
                )
            except BaseException:
                self._buffer.mark_stale()  # it may be stored all the same
                raise
            ids = {entry.id for entry in entries}
            self._pending = [message for message in self._pending if message.id not in ids]
            self._notes.clear()
            self._buffer.saved(stored)
            if self._buffer.view is not None:
                self._count(self._buffer.view)

    def _append_note(self) -> None:
        view = self._buffer.view
        if view is None or not self._count(view):
            self._counts = None  # it was loaded again, without what lies between
        tokens, unnoted = self.context_tokens, self._unnoted
        if not self._pending and unnoted == Usage() and tokens == self._noted_tokens:
            return
        self._noted_tokens, self._unnoted = tokens, Usage()
        last = 0 if view is None else view.last
        note = RunNote(
            run_id=self.id,
            usage=unnoted,
            context_tokens=tokens,
            record_id=None if view is None else view.record_id,
            floor=0 if view is None else view.floor,
            counts=None if self._counts is None else self._counts.plus(self._pending),
            position=last + len(self._pending) + len(self._notes) + 1,
        )
        self._notes.append(note.to_note())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.save()
        except Exception as failure:  # what ended the block may matter more
            if error is None:
                raise
            # Above all a cancellation must arrive; what is pending can still be saved.
            _log.exception("%r could not be saved", self)
            error.add_note(f"{self!r} could not be saved: {failure}")


def _each(messages: object) -> list[object]:
    if isinstance(messages, ConversationMessage):
        return [messages]
    if not isinstance(messages, Iterable):
        raise InvalidRequestError(
            f"a run takes one or several ConversationMessages, not {type(messages).__name__}"
        )
    return list(cast("Iterable[object]", messages))


def _check_usage(usage: object) -> None:
    if not isinstance(usage, Usage):
        raise InvalidRequestError(f"usage must be a Usage, not {type(usage).__name__}")
