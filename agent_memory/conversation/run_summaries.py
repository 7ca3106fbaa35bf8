"""Asking a summarizer in the course of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import attrs

from agent_memory.compaction import Snapshot
from agent_memory.conversation.occupancy import Occupancy
from agent_memory.conversation.pacing import Pace
from agent_memory.events import (
    Compacted,
    CompactionFailed,
    CompactionRequest,
    CompactionSkipped,
    Event,
)
from agent_memory.messages import Usage
from agent_memory.records import SummaryRecord
from agent_memory.storage.summarizing.buffers import Buffer
from agent_memory.storage.summarizing.hooks import Hooks
from agent_memory.storage.summarizing.open_run import OpenRun
from agent_memory.storage.summarizing.policy import Trigger
from agent_memory.storage.summarizing.summary_installer import SummaryInstaller
from agent_memory.storage.summarizing.summary_maker import Proposal, SummaryMaker
from agent_memory.storage.summarizing.view_reader import ViewReader
from agent_memory.telemetry import span
from agent_memory.view import ChatView

_log = logging.getLogger(__name__)

_PAIR: Final = 2
_WAITS: Final = {"superseded": 0, "not_yet": _PAIR}  # others wait for one limit


@attrs.frozen
class Summarizing:
    """What all runs of a manager summarize with.

    Args:
        maker: makes summaries.
        installer: stores them and puts them into the view.
        reader: reads the views.
        trigger: when a function is asked, and how long to wait after attempts in vain.
        decides: whether the summarizer itself decides by the context's tokens.
        hooks: asked before, and told afterwards.
    """

    maker: SummaryMaker
    installer: SummaryInstaller
    reader: ViewReader
    trigger: Trigger
    decides: bool
    hooks: Hooks


@attrs.frozen
class _Attempt:
    """One attempt: of which view, why, how full the context is, and since when."""

    buffer: Buffer
    view: ChatView
    generation: int
    snapshot: Snapshot
    reason: str
    context_tokens: int
    started: float = attrs.field(factory=time.monotonic)


class RunSummaries:
    """Has the part before a run summarized, at most once in the run.

    Args:
        tools: what all runs summarize with.
        run: the run, which is never summarized.
        pace: what the thread's runs know of each other's attempts.
        record: of the summary that the run's view begins with, or None.
        bill: told what each attempt cost.
    """

    def __init__(
        self,
        tools: Summarizing,
        run: OpenRun,
        pace: Pace,
        record: SummaryRecord | None,
        bill: Callable[[Usage], object],
    ) -> None:
        self._tools = tools
        self._run = run
        self._pace = pace
        self._record = record
        self._bill = bill
        self._is_done = False
        self._known = None if record is None else record.id

    async def ask(self, buffer: Buffer, occupancy: Occupancy) -> Exception | None:
        """Ask the summarizer if it is time; return the error of a failed attempt."""
        await self._take_over(buffer, occupancy)
        view = buffer.view
        if view is None or self._is_done or not self._pace.allows(view):
            return None
        snapshot = self._tools.maker.snapshot(view)
        reason = self._reason(view, snapshot, occupancy)
        if reason is None:
            return None
        self._pace.begin(view)
        try:
            return await self._attempt(
                _Attempt(buffer, view, buffer.generation, snapshot, reason, occupancy.tokens),
                occupancy,
            )
        finally:
            self._pace.end(buffer)

    async def write_unsaved(self, buffer: Buffer) -> None:
        """Try once more to write a summary's record that could not be written."""
        await self._tools.installer.write_unsaved(buffer)

    async def _take_over(self, buffer: Buffer, occupancy: Occupancy) -> None:
        """Show the summary that another run of the thread has made meanwhile."""
        if self._pace.record_id in (None, self._known):
            return
        self._known = self._pace.record_id
        buffer.void()
        view = await self._tools.reader.current(buffer, check=False)
        record = await self._tools.reader.newest_record(buffer.key)
        if record is not None and record.id == view.record_id:
            self._record = record
            occupancy.summarize(record)

    # ----------------------------------------------------------------------------- when

    def _reason(self, view: ChatView, snapshot: Snapshot, occupancy: Occupancy) -> str | None:
        """Why the summarizer is to be asked now; None if it is not."""
        if len(snapshot.given_from(0)) == len(snapshot.given_after(self._run.start)):
            return None  # there is nothing yet that it could summarize
        if self._tools.decides:
            return "context" if self._has_grown(snapshot, occupancy) else None
        reason = self._tools.trigger.exceeded(view.size, 0)
        if reason is None or not self._tools.maker.is_worth_it(view, reason):
            return None
        return reason if self._has_room(view) else None

    def _has_grown(self, snapshot: Snapshot, occupancy: Occupancy) -> bool:
        """Whether the context has grown by half since the last summary.

        Where what is kept exceeds the summarizer's limit by itself, every run would be answered
        by a summary of the run before. A summary that says nothing, a window, costs nothing.
        """
        record = self._record
        if record is None or not record.summary:
            return True
        return 2 * occupancy.estimate(snapshot.history) >= 3 * record.tokens_after

    def _has_room(self, view: ChatView) -> bool:
        """Whether the last summary left room, or a whole limit of messages has come since."""
        record, trigger = self._record, self._tools.trigger
        if record is None:
            return True
        after, alone = record.messages_after, len(record.summary) <= 1
        if after <= trigger.trigger_at or (after < trigger.messages and alone):
            return True
        return view.size >= after + trigger.messages

    # ------------------------------------------------------------------------------ how

    async def _attempt(self, attempt: _Attempt, occupancy: Occupancy) -> Exception | None:
        error: Exception | None = None
        try:
            with span("compact", attempt.buffer.key) as attributes:
                event = await self._install(attempt, await self._make(attempt))
                attributes["agent_memory.compaction.outcome"] = type(event).__name__
            if isinstance(event, Compacted):
                occupancy.summarize(event.record)
        except Exception as failure:  # noqa: BLE001  whatever it is, the run goes on
            error, event = failure, self._failed(attempt, failure)
        if not isinstance(event, CompactionSkipped) or event.reason != "not_yet":
            await self._tools.hooks.emit(event)
        return error

    async def _make(self, attempt: _Attempt) -> Proposal | str:
        request = CompactionRequest(
            key=attempt.buffer.key,
            reason=attempt.reason,
            history=tuple(attempt.snapshot.history),
        )
        if not await self._tools.hooks.allows(request):
            return "vetoed"
        return await self._tools.maker.propose(
            attempt.buffer,
            attempt.view,
            attempt.snapshot,
            attempt.reason,
            context_tokens=attempt.context_tokens,
            run=self._run,
            bill=self._bill,
        )

    async def _install(self, attempt: _Attempt, made: Proposal | str) -> Event:
        """Put a proposal into the view; a run is content with one answer."""
        self._is_done = made not in ("not_yet", "vetoed")
        if isinstance(made, str):
            return self._skipped(attempt, made)
        event = await self._tools.installer.install(
            attempt.buffer, attempt.generation, made, attempt.started
        )
        if event is None:
            return self._skipped(attempt, "superseded")
        self._pace.answered(0)
        self._record = event.record
        self._known = self._pace.record_id = event.record.id
        return event

    def _skipped(self, attempt: _Attempt, reason: str) -> CompactionSkipped:
        self._pace.answered(_WAITS.get(reason, self._tools.trigger.messages))
        return CompactionSkipped(
            key=attempt.buffer.key,
            reason=reason,
            messages=attempt.view.size,
            retry_after=self._pace.wait,
            duration=time.monotonic() - attempt.started,
        )

    def _failed(self, attempt: _Attempt, error: Exception) -> CompactionFailed:
        key = attempt.buffer.key
        _log.warning("no new summary of %s; its messages are stored: %s", key, error)
        self._pace.failed(self._tools.trigger)
        return CompactionFailed(
            key=key,
            error=error,
            messages=attempt.view.size,
            retry_after=self._pace.wait,
            duration=time.monotonic() - attempt.started,
        )
