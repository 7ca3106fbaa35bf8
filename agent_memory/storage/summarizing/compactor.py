"""When views are compacted: single flight, back-off, bounds, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Final

from agent_memory.compaction import Snapshot
from agent_memory.events import CompactionFailed, CompactionRequest, CompactionSkipped, Event
from agent_memory.storage.summarizing.buffers import Buffer, Buffers, Flight
from agent_memory.storage.summarizing.hooks import Hooks
from agent_memory.storage.summarizing.policy import Limits, Trigger
from agent_memory.storage.summarizing.slots import Slots
from agent_memory.storage.summarizing.summary_installer import SummaryInstaller
from agent_memory.storage.summarizing.summary_maker import Proposal, SummaryMaker, off_loop
from agent_memory.telemetry import span
from agent_memory.view import ChatView

_log = logging.getLogger(__name__)

_PAIR: Final = 2
_LONGEST_WAIT: Final = 32  # limits; a summarizer that keeps failing is still tried sometimes
_WAITS: Final = {"superseded": 0, "not_yet": _PAIR}  # others wait for one limit


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
            view = buffer.view
            if view is None or not self._may_start(buffer):
                return None
            reason = self._trigger.exceeded(view.size, view.tokens)
            if reason is None:
                buffer.attempted = True
                return None
            waiting = view.last - buffer.waited_from < buffer.wait
            if waiting or view.is_open or not self._maker.is_worth_it(view, reason):
                return None
            return self._start(buffer, reason)

    def start_now(self, buffer: Buffer) -> Flight | None:
        """Start a compaction that was asked for, due or not; None if one is under way."""
        with self._buffers.lock:
            if not self._may_start(buffer):
                return None
            return self._start(buffer, "manual")

    def _may_start(self, buffer: Buffer) -> bool:
        if buffer.flight is not None and buffer.flight.is_dead:
            buffer.end_flight(None)
        return buffer.is_idle and self._buffers.is_held(buffer)

    def _start(self, buffer: Buffer, reason: str) -> Flight:
        flight = buffer.flight = Flight()
        flight.task = asyncio.create_task(self._fly(buffer, reason))
        flight.task.add_done_callback(partial(self._land, buffer, flight))
        return flight

    def _land(self, buffer: Buffer, flight: Flight, _task: asyncio.Task[None]) -> None:
        """End a flight whose task was cancelled before it began."""
        with self._buffers.lock:
            if buffer.flight is flight:
                buffer.end_flight(None)

    async def _fly(self, buffer: Buffer, reason: str) -> None:
        started = time.monotonic()
        error: Exception | None = None
        try:
            with span("compact", buffer.key) as attributes:
                event = await self._compact(buffer, reason, started)
                attributes["agent_memory.compaction.outcome"] = type(event).__name__
            buffer.attempted = True  # who is told may fetch the chat, and must not wait for us
            await self._hooks.emit(event)
        except Exception as failure:  # noqa: BLE001  whatever it is, the chat goes on
            error = failure
            buffer.attempted = True
            await self._hooks.emit(self._failed(buffer, failure, started))
        finally:
            with self._buffers.lock:
                buffer.end_flight(error)
            self._buffers.shrink()

    async def _compact(self, buffer: Buffer, reason: str, started: float) -> Event:
        async with self._slots.slot():
            with self._buffers.lock:
                view, generation = buffer.view, buffer.generation
                if view is None:
                    return self._skipped(buffer, "superseded", started)
                snapshot = self._maker.snapshot(view)
                buffer.waited_from = view.last
            proposal = await self._propose(buffer, view, snapshot, reason)
            if isinstance(proposal, str):
                return self._skipped(buffer, proposal, started)
            installed = await self._installer.install(buffer, generation, proposal, started)
            return installed or self._skipped(buffer, "superseded", started)

    async def _propose(
        self, buffer: Buffer, view: ChatView, snapshot: Snapshot, reason: str
    ) -> Proposal | str:
        history = await off_loop(snapshot, lambda: tuple(snapshot.history))
        if not history:
            return "nothing_to_gain"
        request = CompactionRequest(key=buffer.key, reason=reason, history=history)
        if not await self._hooks.allows(request):
            return "vetoed"
        return await self._maker.propose(buffer, view, snapshot, reason)

    def _skipped(self, buffer: Buffer, reason: str, started: float) -> CompactionSkipped:
        with self._buffers.lock:
            buffer.failures = 0
            buffer.wait = _WAITS.get(reason, self._trigger.messages)
            return CompactionSkipped(
                key=buffer.key,
                reason=reason,
                messages=0 if buffer.view is None else buffer.view.size,
                retry_after=buffer.wait,
                duration=time.monotonic() - started,
            )

    def _failed(self, buffer: Buffer, error: Exception, started: float) -> CompactionFailed:
        _log.warning("no new summary of %s; its messages are stored: %s", buffer.key, error)
        with self._buffers.lock:
            longest = _LONGEST_WAIT * self._trigger.messages
            buffer.wait = min(_PAIR << min(buffer.failures, 30), longest)
            buffer.failures += 1
            return CompactionFailed(
                key=buffer.key,
                error=error,
                messages=0 if buffer.view is None else buffer.view.size,
                retry_after=buffer.wait,
                duration=time.monotonic() - started,
            )
