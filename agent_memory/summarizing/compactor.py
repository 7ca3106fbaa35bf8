"""When a chat is summarized, and how its summary gets into the store and the view.

One attempt goes through the same steps for a storage and for a run of a conversation: decide
that it is due, begin as the only one of the chat, ask, check the answer, swap the chat's summary
record, splice the view, wait for growth, and notify the application.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from agent_memory.errors import CorruptedRecordError, StorageError, SummarizerError
from agent_memory.events import (
    Compacted,
    CompactionFailed,
    CompactionRequest,
    CompactionSkipped,
    Event,
)
from agent_memory.log import SummaryRecord
from agent_memory.storage._engine.event_loops import SharedTask, run_fairly
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizers.base import Summarizer, SummarizerObject
from agent_memory.summarizing.buffers import Attempts, Buffer, Buffers
from agent_memory.summarizing.compaction import Snapshot
from agent_memory.summarizing.draft import Attempt, Draft, Drafter, RunContext
from agent_memory.summarizing.loader import ViewLoader
from agent_memory.summarizing.options import SummarizingOptions
from agent_memory.summarizing.view import ChatView
from agent_memory.telemetry import Attributes, span
from agent_memory.tokens import TokenCounter

_log = logging.getLogger(__name__)
A = TypeVar("A")


class Compactor:
    """Summarizes the chats of buffers, one summarizer call per chat at a time.

    Args:
        storage: its summary store keeps the records.
        loader: reads a view again when another worker's summary is adopted.
        buffers: their lock guards every change; it is never held while anything is awaited.
        summarizer: what is asked for summaries.
        options: when, and within which bounds.
        counter: counts tokens.
    """

    def __init__(
        self,
        storage: ChatStorage,
        loader: ViewLoader,
        buffers: Buffers,
        summarizer: Summarizer,
        *,
        options: SummarizingOptions,
        counter: TokenCounter,
    ) -> None:
        self._storage = storage
        self._loader = loader
        self._buffers = buffers
        self._options = options
        self._drafter = Drafter(summarizer, options, counter)
        # Without `trigger_tokens`, a summarizer object decides itself when a conversation is long.
        self._decides = isinstance(summarizer, SummarizerObject)

    # ------------------------------------------------------------------ when: by a chat's view

    def start_if_due(self, buffer: Buffer) -> SharedTask[Exception] | None:
        """Start a compaction in a task of its own and return it; None if none is due.

        The task outlives its waiters: a caller's cancellation does not end it.
        """
        with self._buffers.lock:
            reason = self._due(buffer)
            return None if reason is None else self._start(buffer, reason)

    def is_due(self, buffer: Buffer) -> bool:
        """Whether :meth:`start_if_due` would start a compaction."""
        with self._buffers.lock:
            return self._due(buffer) is not None

    def start_now(self, buffer: Buffer) -> SharedTask[Exception] | None:
        """Start a compaction that was asked for, due or not; None if one is under way."""
        with self._buffers.lock:
            return self._start(buffer, "manual") if self._may_start(buffer) else None

    def _due(self, buffer: Buffer) -> str | None:
        view = buffer.view
        if view is None or not self._may_start(buffer):
            return None
        reasons = self._options.exceeded(view.size, view.tokens)
        if not reasons:
            buffer.attempted = True
            return None
        reason = buffer.attempts.cooldown.first_ready(reasons, view.last, view.tokens)
        if reason is None or (view.is_open and self._options.waits_for_exchange(*view.closed)):
            return None
        return reason if self._drafter.is_worth_it(view, reason) else None

    def _may_start(self, buffer: Buffer) -> bool:
        self._drop_abandoned(buffer.attempts)
        return buffer.is_idle and self._buffers.is_held(buffer)

    def _drop_abandoned(self, attempts: Attempts) -> None:
        """End an attempt if its loop does not run, so that another one may begin."""
        if attempts.task is not None and attempts.task.is_abandoned:
            attempts.cooldown.abandoned(self._options)
            attempts.end(attempts.task)

    def _start(self, buffer: Buffer, reason: str) -> SharedTask[Exception]:
        async def work(task: SharedTask[Exception]) -> None:
            error = await self._run(Attempt(buffer, task, reason))
            with self._buffers.lock:
                buffer.attempts.end(task, error)
            self._buffers.shrink()

        def cancelled(task: SharedTask[Exception]) -> None:
            with self._buffers.lock:
                if buffer.attempts.task is task:
                    buffer.attempts.cooldown.abandoned(self._options)
                    # In a program of one ``asyncio.run`` after another, no attempt in the
                    # background reaches its end: the next fetch has to wait for one.
                    buffer.attempted = False
                buffer.attempts.end(task)

        task = buffer.attempts.task = SharedTask[Exception].start(work, when_cancelled=cancelled)
        return task

    # ---------------------------------------------------------- when: by the context of a run

    async def summarize_run(self, buffer: Buffer, context: RunContext) -> Exception | None:
        """Summarize the older part of a run's view if it is time, in the caller's task.

        Args:
            buffer: of the run; it shares its attempts with the other runs of the thread.
            context: the run.

        Returns:
            The error of a failed attempt.
        """
        view, attempts = buffer.view, buffer.attempts
        if view is None or not self._is_free(attempts):
            return None
        reasons = self._reasons(view, context)
        if not reasons:
            return None
        snapshot = self._drafter.snapshot(view)
        tokens = await run_fairly(
            len(snapshot.tail), lambda: self._drafter.tokens(snapshot.history)
        )
        reason = attempts.cooldown.first_ready(reasons, view.size, tokens)
        if reason is None or not self._may_cut(snapshot, view, reason, context):
            return None
        with self._buffers.lock:
            if buffer.view is not view or not self._is_free(attempts):
                return None  # another task came first
            task = attempts.task = SharedTask[Exception]()
        attempts.cooldown.begin(view.size, tokens)
        try:
            return await self._run(Attempt(buffer, task, reason, context))
        finally:
            attempts.end(task)

    def _is_free(self, attempts: Attempts) -> bool:
        with self._buffers.lock:
            self._drop_abandoned(attempts)
            return not attempts.is_busy

    def _reasons(self, view: ChatView, context: RunContext) -> list[str]:
        """Why the summarizer may be asked now; empty if the context is within its limit."""
        options = self._options
        if options.trigger_tokens is None:
            return ["context"] if self._decides else options.exceeded(view.size, 0)
        due = ["context"] if context.tokens > options.trigger_tokens else []
        too_many = not self._decides and "trigger_at" in options.exceeded(view.size, 0)
        return [*due, "trigger_at"] if too_many else due

    def _may_cut(
        self, snapshot: Snapshot, view: ChatView, reason: str, context: RunContext
    ) -> bool:
        """Whether something before the run may be summarized, or a part of a run that is long."""
        if not self._drafter.is_worth_it(view, reason):
            return False
        own = snapshot.given_after(context.run.start)
        if len(own) < len(snapshot.given_from(0)):
            return True
        return snapshot.is_cuttable and self._drafter.divides(snapshot, context)

    # -------------------------------------------------------------------------------- attempt

    async def _run(self, attempt: Attempt) -> Exception | None:
        """Ask, check, store, show, and notify; return the error of a failed attempt."""
        event: Event
        error = None
        try:
            with span("compact", attempt.buffer.key) as attributes:
                attributes["agent_memory.compaction.trigger"] = attempt.reason
                outcome = await self._compact(attempt)
                event = self._skipped(attempt, outcome) if isinstance(outcome, str) else outcome
                attributes.update(_outcome(event))
        except Exception as failure:  # noqa: BLE001  whatever it is, the chat goes on
            error = failure
            event = self._failed(attempt, failure)
        attempt.buffer.attempted = True  # on_event may fetch the chat, and must not wait for us
        waits = isinstance(event, CompactionSkipped) and event.reason == "not_yet"
        if attempt.context is None or not waits:
            await notify(self._options, event)
        return error

    async def _compact(self, attempt: Attempt) -> Compacted | str:
        """Install a new summary; return what happened, or why there is none."""
        async with nullcontext() if attempt.context else self._buffers.summaries.slot():
            with self._buffers.lock:
                view = attempt.buffer.view
                if view is None or not attempt.is_current:
                    return "superseded"
                attempt.begin(view, self._drafter.snapshot(view))
                if attempt.context is None:
                    attempt.buffer.attempts.cooldown.begin(view.last, view.tokens)
            draft = await self._draft(attempt)
            if isinstance(draft, str):
                return draft
            shown = await self._install(attempt, draft)
            if shown is None:
                return "superseded"
            self._start_cooldown(attempt, shown)
            return Compacted(
                key=attempt.buffer.key,
                record=shown,
                messages_before=draft.record.messages_before,
                messages_after=shown.messages_after,
                clipped=draft.clipped,
                unpinned=len(attempt.snapshot.demoted),
                adopted=shown is not draft.record,
                duration=time.monotonic() - attempt.started,
            )

    async def _draft(self, attempt: Attempt) -> Draft | str:
        snapshot, key = attempt.snapshot, attempt.buffer.key
        history = await run_fairly(len(snapshot.tail), lambda: tuple(snapshot.history))
        asked = CompactionRequest(key=key, reason=attempt.reason, history=history)
        if not await _is_allowed(self._options, asked):
            return "vetoed"
        return await self._drafter.draft(attempt)

    # ---------------------------------------------------------------------------- afterwards

    def _start_cooldown(self, attempt: Attempt, record: SummaryRecord) -> None:
        """Note how much must come before the next summary; warn if the view is still over."""
        buffer, context, options = attempt.buffer, attempt.context, self._options
        with self._buffers.lock:
            view, attempts = buffer.view, buffer.attempts
            attempts.record_id = record.id
            if context is not None:
                attempts.cooldown.summarized_run(record, options)
                tokens, limit = context.summarized(record), options.trigger_tokens
                if limit is not None and tokens > limit:
                    self._warn(buffer, "still_over", tokens)
            elif view is not None:
                attempts.cooldown.summarized_view(
                    view.size, view.tokens, len(view.summary), options
                )
                if options.exceeded(record.messages_after, record.tokens_after):
                    self._warn(buffer, "still_over")

    def _skipped(self, attempt: Attempt, reason: str) -> CompactionSkipped:
        with self._buffers.lock:
            if attempt.is_current:
                cooldown, context = attempt.buffer.attempts.cooldown, attempt.context
                if context is None:
                    cooldown.skipped(reason, self._options)
                    self._warn(attempt.buffer, reason)
                elif self._decides and self._options.trigger_tokens is None:
                    # The application's summarizer decides: one more pair may let it gain.
                    soon = reason == "nothing_to_gain"
                    cooldown.skipped("not_yet" if soon else reason, self._options)
                else:
                    cooldown.skipped(reason, self._options)
                    self._warn(attempt.buffer, reason, context.tokens)
            return CompactionSkipped(reason=reason, **self._figures(attempt))

    def _failed(self, attempt: Attempt, error: Exception) -> CompactionFailed:
        key = attempt.buffer.key
        # As text: a log record that is kept would keep the error's frames, and its loop.
        _log.warning("no new summary of %s; its messages are stored: %s", key, str(error))
        with self._buffers.lock:
            if attempt.is_current:
                attempt.buffer.attempts.cooldown.failed(self._options)
            return CompactionFailed(error=error, **self._figures(attempt))

    def _figures(self, attempt: Attempt) -> dict[str, Any]:
        """What the events of an attempt without a summary say alike."""
        buffer = attempt.buffer
        return {
            "key": buffer.key,
            "messages": 0 if buffer.view is None else buffer.view.size,
            "retry_after": buffer.attempts.cooldown.wait,
            "duration": time.monotonic() - attempt.started,
        }

    def _warn(self, buffer: Buffer, reason: str, tokens: int | None = None) -> None:
        """Warn that a chat stays over its trigger.

        Args:
            buffer: of the chat.
            reason: why.
            tokens: of a run's context, which is over; None to look at the view.
        """
        view = buffer.view
        if view is None:
            return
        if tokens is None and self._options.exceeded(view.size, view.tokens):
            tokens = view.tokens
        if tokens is not None:
            buffer.attempts.cooldown.warn(buffer.key, reason, view.size, tokens)

    # ---------------------------------------------------------------------- store and splice

    async def _install(self, attempt: Attempt, draft: Draft) -> SummaryRecord | None:
        """Store the record, then replace the prefix of the view that it was made from.

        Returns:
            The record that is shown, ours or another worker's; None when the chat was deleted,
            trimmed or read again since, or when another attempt took the place of this one.
        """
        buffer, view, record = attempt.buffer, attempt.view, draft.record
        if not attempt.is_current:
            return None  # its loop had stopped for a time, and another attempt took its place
        written = await self._write(buffer, record)
        if written is False:
            adopted = await self._adopt(attempt, record)
            if adopted is not None:
                return adopted
        with self._buffers.lock:
            if buffer.generation != attempt.generation or buffer.view is not view:
                return None
            if not attempt.is_current:
                return None
            stored_id = record.id if written else view.record_id
            view.splice(attempt.snapshot, draft.compaction, stored_id)
            buffer.unsaved = record if written is None else None
        return record

    async def _write(self, buffer: Buffer, record: SummaryRecord) -> bool | None:
        """Write a record.

        Returns:
            True if it is the newest now; False if another one is, or if the chat was trimmed or
            deleted; None if it could not be written, or the store keeps no records.
        """
        summaries = self._storage.summaries()
        if summaries is None:
            return None
        try:
            return await summaries.save_summary(buffer.key, record, replaces=record.replaces)
        except StorageError as error:
            _log.warning("summary of %s not stored yet: %s", buffer.key, error)
            return None

    async def write_unsaved(self, buffer: Buffer) -> None:
        """Try once more to write a record that could not be written."""
        record, view = buffer.unsaved, buffer.view
        if record is None or view is None or self._storage.summaries() is None:
            return
        written = await self._write(buffer, record)
        with self._buffers.lock:
            if buffer.unsaved is record and written is not None:
                buffer.unsaved = None
                if written and buffer.view is view:
                    view.record_id = record.id

    async def _adopt(self, attempt: Attempt, record: SummaryRecord) -> SummaryRecord | None:
        """Show the record that another worker stored first; None if none fits the log."""
        buffer = attempt.buffer
        newest = await self._loader.newest_record(buffer.key)
        if newest is None and record.replaces is not None and await self._has_none(buffer):
            # Another worker called rebuild(): the view is to be made from the raw log.
            await self._loader.reload(buffer, attempt.view)
            return None
        if newest is None or newest.id == record.replaces:
            # No other record won: the chat was trimmed or deleted, which this read notices.
            await self._loader.current(buffer, check=True)
            return None
        view = await self._loader.reload(buffer, attempt.view)
        return newest if view.record_id == newest.id else None

    async def _has_none(self, buffer: Buffer) -> bool:
        summaries = self._storage.summaries()
        try:
            return summaries is not None and await summaries.load_summary(buffer.key) is None
        except CorruptedRecordError:
            return False  # there is one, of a newer version perhaps


def stored_but(error: Exception) -> SummarizerError:
    """Return the error for a save that stored its message but failed to summarize."""
    text = f"the messages are stored, but not summarized: {error}"
    try:
        return type(error)(text) if isinstance(error, SummarizerError) else SummarizerError(text)
    except Exception:  # noqa: BLE001 - an application's own error takes other arguments
        return SummarizerError(text)


async def notify(options: SummarizingOptions, event: Event) -> None:
    """Call ``on_event``; what it raises is logged."""
    if options.on_event is not None:
        await _call("on_event", options.on_event, event)


async def _is_allowed(options: SummarizingOptions, request: CompactionRequest) -> bool:
    """Whether ``before_compaction`` allows it, as it does where it fails."""
    if options.before_compaction is None:
        return True
    answer = await _call("before_compaction", options.before_compaction, request)
    return answer is not False


async def _call(name: str, function: Callable[[A], object], argument: A) -> object:
    try:
        result = function(argument)
        return await result if inspect.isawaitable(result) else result
    except Exception:  # noqa: BLE001  foreign code; an observer must not break a chat
        _log.exception("%s failed at %s", name, type(argument).__name__)
        return None


def _outcome(event: Event) -> Attributes:
    """What the span of a compaction says at its end; a cost that is not known is left out."""
    found: Attributes = {"agent_memory.compaction.outcome": type(event).__name__}
    if isinstance(event, CompactionSkipped):
        found["agent_memory.compaction.reason"] = event.reason
    if isinstance(event, Compacted):
        record = event.record
        found |= {
            "agent_memory.compaction.messages_before": event.messages_before,
            "agent_memory.compaction.messages_after": event.messages_after,
            "agent_memory.compaction.tokens_before": record.tokens_before,
            "agent_memory.compaction.tokens_after": record.tokens_after,
        }
        # An adopted summary was paid for by the worker that made it.
        if record.usage is not None and not event.adopted:
            found["gen_ai.usage.input_tokens"] = record.usage.input_tokens
            found["gen_ai.usage.output_tokens"] = record.usage.output_tokens
    return found
