"""When views are compacted: single flight, back-off, bounds, and what is told of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import Final

from agent_memory.events import CompactionFailed, CompactionSkipped, Event
from agent_memory.storage.buffers import Buffer, Buffers, Flight
from agent_memory.storage.policy import Trigger
from agent_memory.storage.summary_installer import SummaryInstaller
from agent_memory.storage.summary_maker import SummaryMaker

_log = logging.getLogger(__name__)

_PAIR: Final = 2
_LONGEST_WAIT: Final = 32  # limits; a summarizer that keeps failing is still tried sometimes


class Compactor:
    """Compacts the views of buffers, one summarizer call per chat at a time.

    Args:
        buffers: whose lock guards what is changed; it is never held while anything is awaited.
        trigger: when a view is compacted.
        maker: makes summaries.
        installer: puts them into the view and the store.
        on_event: told of each outcome, or None.
    """

    def __init__(
        self,
        buffers: Buffers,
        trigger: Trigger,
        maker: SummaryMaker,
        installer: SummaryInstaller,
        on_event: Callable[[Event], object] | None,
    ) -> None:
        self._buffers = buffers
        self._trigger = trigger
        self._maker = maker
        self._installer = installer
        self._on_event = on_event

    def start_if_due(self, buffer: Buffer) -> Flight | None:
        """Start a compaction in a task of its own and return it; None if none is due.

        The task outlives whoever waits for it: a caller's cancellation does not end it.
        """
        with self._buffers.lock:
            if buffer.flight is not None and buffer.flight.is_dead:
                buffer.end_flight(None)
            reason = self._reason(buffer)
            if reason is None:
                return None
            flight = buffer.flight = Flight()
        flight.task = asyncio.create_task(self._fly(buffer, reason))
        return flight

    def _reason(self, buffer: Buffer) -> str | None:
        view = buffer.view
        if view is None or not buffer.is_idle or not self._buffers.is_held(buffer):
            return None
        reason = self._trigger.exceeded(view)
        if reason is None:
            buffer.attempted = True
        elif view.last - buffer.waited_from < buffer.wait or view.is_open:
            return None
        return reason

    async def _fly(self, buffer: Buffer, reason: str) -> None:
        started = time.monotonic()
        error: Exception | None = None
        try:
            await self.emit(await self._compact(buffer, reason, started))
        except Exception as failure:  # noqa: BLE001  whatever it is, the chat goes on
            error = failure
            await self.emit(self._failed(buffer, failure, started))
        finally:
            with self._buffers.lock:
                buffer.end_flight(error)
            self._buffers.shrink()

    async def _compact(self, buffer: Buffer, reason: str, started: float) -> Event:
        with self._buffers.lock:
            view, generation = buffer.view, buffer.generation
            if view is None:
                return self._skipped(buffer, "superseded", started)
            snapshot = view.snapshot()
            buffer.waited_from = view.last
        proposal = await self._maker.propose(buffer, view, snapshot, reason)
        if isinstance(proposal, str):
            return self._skipped(buffer, proposal, started)
        installed = await self._installer.install(buffer, generation, proposal, started)
        return installed or self._skipped(buffer, "superseded", started)

    def _skipped(self, buffer: Buffer, reason: str, started: float) -> CompactionSkipped:
        waits = {"superseded": 0, "not_yet": _PAIR}
        with self._buffers.lock:
            buffer.failures = 0
            buffer.wait = waits.get(reason, self._trigger.messages)
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

    async def emit(self, event: Event) -> None:
        """Tell ``on_event``; what it raises is logged and goes no further."""
        if self._on_event is None:
            return
        try:
            result = self._on_event(event)
            if inspect.isawaitable(result):
                await result
        except Exception:  # noqa: BLE001  foreign code; a chat never fails for who watches it
            _log.exception("on_event failed at %s of %s", type(event).__name__, event.key)
