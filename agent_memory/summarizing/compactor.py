"""When views are compacted: single flight, back-off, bounds, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

from agent_memory.events import (
    Compacted,
    CompactionFailed,
    CompactionRequest,
    CompactionSkipped,
    Event,
)
from agent_memory.records import SummaryRecord
from agent_memory.storage._engine.fair_share import paced
from agent_memory.summarizing.buffers import Buffer, Buffers, Flight
from agent_memory.summarizing.compaction import Snapshot
from agent_memory.summarizing.draft import (
    Proposal,
    Request,
    SummaryMaker,
)
from agent_memory.summarizing.hooks import Hooks
from agent_memory.summarizing.options import Limits, Trigger, quarter
from agent_memory.summarizing.slots import Slots
from agent_memory.summarizing.summary_installer import SummaryInstaller
from agent_memory.summarizing.view import ChatView
from agent_memory.telemetry import Attributes, span

_log = logging.getLogger(__name__)


class Compactor:
    """Compacts the views of buffers, one summarizer call per chat at a time.

    Args:
        buffers: whose lock guards what is changed; it is never held while anything is awaited.
        trigger: when a view is compacted.
        limits: how many at once.
        maker: makes summaries.
        installer: puts them into the view and the store.
        hooks: asked before, and told afterwards.
    """

    def __init__(
        self,
        buffers: Buffers,
        trigger: Trigger,
        limits: Limits,
        *,
        maker: SummaryMaker,
        installer: SummaryInstaller,
        hooks: Hooks,
    ) -> None:
        self._buffers = buffers
        self._trigger = trigger
        self._maker = maker
        self._installer = installer
        self._hooks = hooks
        self._slots = Slots(limits.max_concurrent_summaries)

    def start_if_due(self, buffer: Buffer) -> Flight | None:
        """Start a compaction in a task of its own and return it; None if none is due.

        The task outlives whoever waits for it: a caller's cancellation does not end it.
        """
        with self._buffers.lock:
            reason = self._due(buffer)
            return None if reason is None else self._start(buffer, reason)

    def is_due(self, buffer: Buffer) -> bool:
        """Whether :meth:`start_if_due` would start a compaction."""
        with self._buffers.lock:
            return self._due(buffer) is not None

    def _due(self, buffer: Buffer) -> str | None:
        view = buffer.view
        if view is None or not self._may_start(buffer):
            return None
        reasons = self._trigger.exceeded(view.size, view.tokens)
        if not reasons:
            buffer.attempted = True
            return None
        reason = buffer.pace.chosen(reasons, view.last, view.tokens)
        if reason is None or (view.is_open and self._trigger.waits_for(*view.closed)):
            return None
        return reason if self._maker.is_worth_it(view, reason) else None

    def start_now(self, buffer: Buffer) -> Flight | None:
        """Start a compaction that was asked for, due or not; None if one is under way."""
        with self._buffers.lock:
            if not self._may_start(buffer):
                return None
            return self._start(buffer, "manual")

    def _may_start(self, buffer: Buffer) -> bool:
        if buffer.flight is not None and buffer.flight.is_dead:
            self._abandon(buffer, buffer.flight)
        return buffer.is_idle and self._buffers.is_held(buffer)

    def _abandon(self, buffer: Buffer, flight: Flight) -> None:
        """Go on without a compaction whose loop does not run: others may begin one."""
        buffer.pace.abandoned(self._trigger, self._trigger.trigger_tokens)
        buffer.end_flight(flight, None)

    def _start(self, buffer: Buffer, reason: str) -> Flight:
        flight = buffer.flight = Flight()
        flight.task = asyncio.create_task(self._fly(buffer, flight, reason))
        flight.task.add_done_callback(partial(self._land, buffer, flight))
        return flight

    def _land(self, buffer: Buffer, flight: Flight, task: asyncio.Task[None]) -> None:
        """End a flight whose task was cancelled, perhaps before it began."""
        with self._buffers.lock:
            if buffer.flight is flight and task.cancelled():
                buffer.pace.abandoned(self._trigger, self._trigger.trigger_tokens)
                # In a program of one ``asyncio.run`` after another nothing behind a fetch ends.
                buffer.attempted = False
            buffer.end_flight(flight, None)

    async def _fly(self, buffer: Buffer, flight: Flight, reason: str) -> None:
        started = time.monotonic()
        error: Exception | None = None
        try:
            with span("compact", buffer.key) as attributes:
                attributes["agent_memory.compaction.trigger"] = reason
                event = await self._compact(buffer, flight, reason, started)
                attributes.update(_outcome(event))
        except Exception as failure:  # noqa: BLE001  whatever it is, the chat goes on
            error, event = failure, self._failed(buffer, flight, failure, started)
        buffer.attempted = True  # who is told may fetch the chat, and must not wait for us
        await self._hooks.emit(event)
        with self._buffers.lock:
            buffer.end_flight(flight, error)
        self._buffers.shrink()

    async def _compact(self, buffer: Buffer, flight: Flight, reason: str, started: float) -> Event:
        async with self._slots.slot():
            with self._buffers.lock:
                view, generation = buffer.view, buffer.generation
                if view is None or buffer.flight is not flight:
                    return self._skipped(buffer, flight, "superseded", started)
                snapshot = self._maker.snapshot(view)
                buffer.pace.begin(view.last, view.tokens)
            proposal = await self._propose(buffer, view, snapshot, reason)
            if isinstance(proposal, str):
                return self._skipped(buffer, flight, proposal, started)
            installed = await self._installer.install(
                buffer, generation, proposal, started, flight=flight
            )
            if installed is None:
                return self._skipped(buffer, flight, "superseded", started)
            self._installed(buffer, installed.record)
            return installed

    def _installed(self, buffer: Buffer, record: SummaryRecord) -> None:
        """Note how much has to come until the next summary; warn if the view is long even so."""
        with self._buffers.lock:
            view, trigger = buffer.view, self._trigger
            if view is None:
                return
            wait = 0 if trigger.has_room(view.size, len(view.block)) else trigger.messages
            token_wait = quarter(trigger.trigger_tokens)
            if token_wait is not None and view.tokens <= 2 * token_wait:
                token_wait = 0
            buffer.pace.summarized(view.tokens, wait, token_wait)
            if trigger.exceeded(record.messages_after, record.tokens_after):
                self._warn(buffer, "still_over")

    def _warn(self, buffer: Buffer, reason: str) -> None:
        view = buffer.view
        if view is not None and self._trigger.exceeded(view.size, view.tokens):
            buffer.overdue.tell(buffer.key, reason, view.size, view.tokens)

    async def _propose(
        self, buffer: Buffer, view: ChatView, snapshot: Snapshot, reason: str
    ) -> Proposal | str:
        history = await paced(len(snapshot.tail), lambda: tuple(snapshot.history))
        request = CompactionRequest(key=buffer.key, reason=reason, history=history)
        if not await self._hooks.allows(request):
            return "vetoed"
        asked = Request(view=view, snapshot=snapshot, reason=reason)
        return await self._maker.propose(buffer, asked)

    def _skipped(
        self, buffer: Buffer, flight: Flight, reason: str, started: float
    ) -> CompactionSkipped:
        with self._buffers.lock:
            if buffer.flight is flight:
                limit = self._trigger.trigger_tokens
                if reason == "more_tokens":
                    buffer.pace.failed(self._trigger, limit)
                else:
                    buffer.pace.skipped(reason, self._trigger, limit)
                self._warn(buffer, reason)
            return CompactionSkipped(
                key=buffer.key,
                reason=reason,
                messages=0 if buffer.view is None else buffer.view.size,
                retry_after=buffer.pace.wait,
                duration=time.monotonic() - started,
            )

    def _failed(
        self, buffer: Buffer, flight: Flight, error: Exception, started: float
    ) -> CompactionFailed:
        # As text: who keeps the log record would keep the error's frames, and its loop.
        _log.warning("no new summary of %s; its messages are stored: %s", buffer.key, str(error))
        with self._buffers.lock:
            if buffer.flight is flight:
                buffer.pace.failed(self._trigger, self._trigger.trigger_tokens)
            return CompactionFailed(
                key=buffer.key,
                error=error,
                messages=0 if buffer.view is None else buffer.view.size,
                retry_after=buffer.pace.wait,
                duration=time.monotonic() - started,
            )


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
