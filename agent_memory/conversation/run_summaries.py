"""Asking a summarizer in the course of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import attrs

from agent_memory.conversation.occupancy import Occupancy
from agent_memory.conversation.pacing import ThreadPace
from agent_memory.events import (
    Compacted,
    CompactionFailed,
    CompactionRequest,
    CompactionSkipped,
    Event,
)
from agent_memory.messages import Usage
from agent_memory.records import SummaryRecord
from agent_memory.storage._engine.fair_share import paced
from agent_memory.summarizing.buffers import Buffer
from agent_memory.summarizing.compaction import OpenRun, Snapshot
from agent_memory.summarizing.draft import (
    Proposal,
    Request,
    SummaryMaker,
)
from agent_memory.summarizing.hooks import Hooks
from agent_memory.summarizing.loader import ViewReader
from agent_memory.summarizing.options import Trigger, quarter
from agent_memory.summarizing.summary_installer import SummaryInstaller
from agent_memory.summarizing.view import ChatView
from agent_memory.telemetry import span

_log = logging.getLogger(__name__)


@attrs.frozen
class Summarizing:
    """What all runs of a manager summarize with.

    Args:
        maker: makes summaries.
        installer: stores them and puts them into the view.
        reader: reads the views.
        trigger: its tokens are the limit of the context; its messages the limit where there is
            none.
        decides: whether the summarizer itself decides where the context has no limit.
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
    """Has the older part of a run's view summarized, as often as it grows too large.

    Args:
        tools: what all runs summarize with.
        run: the run. It stays whole, unless it exceeds the limit by itself.
        pace: what the thread's runs know of each other's attempts.
        record: of the summary that the run's view begins with, or None.
        bill: told what each attempt cost.
    """

    def __init__(
        self,
        tools: Summarizing,
        run: OpenRun,
        pace: ThreadPace,
        record: SummaryRecord | None,
        bill: Callable[[Usage], object],
    ) -> None:
        self._tools = tools
        self._run = run
        self._pace = pace
        self._bill = bill
        self._known = None if record is None else record.id
        if record is not None and record.id != pace.record_id:
            pace.record_id = record.id
            self._wait_after(record)

    async def ask(self, buffer: Buffer, occupancy: Occupancy) -> Exception | None:
        """Ask the summarizer if it is time; return the error of a failed attempt."""
        await self._take_over(buffer, occupancy)
        view = buffer.view
        if view is None or not self._pace.is_free:
            return None
        reasons = self._reasons(view, occupancy)
        if not reasons:
            return None
        snapshot = self._tools.maker.snapshot(view)
        tokens = await paced(len(snapshot.tail), lambda: occupancy.estimate(snapshot.history))
        reason = self._pace.growth.chosen(reasons, view.size, tokens)
        if reason is None or not self._may_cut(snapshot, view, reason, occupancy.tokens):
            return None
        if buffer.view is not view or not self._pace.is_free:
            return None  # another task came first
        self._pace.begin(view.size, tokens)
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
            occupancy.summarize(record)

    # ----------------------------------------------------------------------------- when

    def _reasons(self, view: ChatView, occupancy: Occupancy) -> list[str]:
        """Why the summarizer may be asked now; empty if the view is within its limit."""
        trigger = self._tools.trigger
        if trigger.trigger_tokens is not None:
            due = ["context"] if occupancy.tokens > trigger.trigger_tokens else []
            too_many = not self._tools.decides and "trigger_at" in trigger.exceeded(view.size, 0)
            return [*due, "trigger_at"] if too_many else due
        return ["context"] if self._tools.decides else trigger.exceeded(view.size, 0)

    def _may_cut(
        self, snapshot: Snapshot, view: ChatView, reason: str, context_tokens: int
    ) -> bool:
        """Whether something before the run, or of one that is long, may be summarized."""
        maker = self._tools.maker
        if not maker.is_worth_it(view, reason):
            return False
        own = snapshot.given_after(self._run.start)
        if len(own) < len(snapshot.given_from(0)):
            return True
        return snapshot.is_cuttable and maker.divides(snapshot, self._run, context_tokens)

    def _wait_after(self, record: SummaryRecord) -> None:
        """Wait for growth after a summary: what is kept may exceed the limit by itself.

        Asked again at once, it would be summarized in every round. What says nothing, a window,
        costs nothing and may slide each time.
        """
        trigger, growth = self._tools.trigger, self._pace.growth
        growth.begin(record.messages_after, record.tokens_after)
        room = trigger.has_room(record.messages_after, len(record.summary))
        least = max(quarter(trigger.trigger_tokens) or 0, record.tokens_after // 2)
        growth.summarized(
            record.tokens_after,
            0 if room else trigger.messages,
            least if record.summary else 0,
        )

    # ------------------------------------------------------------------------------ how

    async def _attempt(self, attempt: _Attempt, occupancy: Occupancy) -> Exception | None:
        error: Exception | None = None
        try:
            with span("compact", attempt.buffer.key) as attributes:
                event = await self._install(attempt, await self._make(attempt))
                attributes["agent_memory.compaction.outcome"] = type(event).__name__
            if isinstance(event, Compacted):
                occupancy.summarize(event.record)
                limit = self._tools.trigger.trigger_tokens
                if limit is not None and occupancy.tokens > limit:
                    self._warn(attempt, "still_over", occupancy.tokens)
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
        asked = Request(
            view=attempt.view,
            snapshot=attempt.snapshot,
            reason=attempt.reason,
            context_tokens=attempt.context_tokens,
            run=self._run,
            bill=self._bill,
        )
        return await self._tools.maker.propose(attempt.buffer, asked)

    async def _install(self, attempt: _Attempt, made: Proposal | str) -> Event:
        """Put a proposal into the view."""
        if isinstance(made, str):
            return self._skipped(attempt, made)
        event = await self._tools.installer.install(
            attempt.buffer, attempt.generation, made, attempt.started
        )
        if event is None:
            return self._skipped(attempt, "superseded")
        self._wait_after(event.record)
        self._known = self._pace.record_id = event.record.id
        return event

    def _skipped(self, attempt: _Attempt, reason: str) -> CompactionSkipped:
        trigger, growth = self._tools.trigger, self._pace.growth
        limit = trigger.trigger_tokens
        if reason == "more_tokens":
            growth.failed(trigger, limit)
        elif reason == "nothing_to_gain" and limit is None and self._tools.decides:
            # An application's own: it may have an answer for one pair more, as after "not yet".
            growth.skipped("not_yet", trigger, limit)
        else:
            growth.skipped(reason, trigger, limit)
        if limit is not None or not self._tools.decides:
            self._warn(attempt, reason, attempt.context_tokens)
        return CompactionSkipped(
            key=attempt.buffer.key,
            reason=reason,
            messages=attempt.view.size,
            retry_after=growth.wait,
            duration=time.monotonic() - attempt.started,
        )

    def _warn(self, attempt: _Attempt, reason: str, tokens: int) -> None:
        self._pace.overdue.tell(attempt.buffer.key, reason, attempt.view.size, tokens)

    def _failed(self, attempt: _Attempt, error: Exception) -> CompactionFailed:
        key = attempt.buffer.key
        _log.warning("no new summary of %s; its messages are stored: %s", key, str(error))
        trigger = self._tools.trigger
        self._pace.growth.failed(trigger, trigger.trigger_tokens)
        return CompactionFailed(
            key=key,
            error=error,
            messages=attempt.view.size,
            retry_after=self._pace.growth.wait,
            duration=time.monotonic() - attempt.started,
        )
