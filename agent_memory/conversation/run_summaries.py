"""Asking a summarizer in the course of a run."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from agent_memory.conversation.occupancy import Occupancy
from agent_memory.errors import SummarizerError
from agent_memory.events import CompactionFailed, CompactionRequest
from agent_memory.messages import Usage
from agent_memory.storage.summarizing.buffers import Buffer
from agent_memory.storage.summarizing.hooks import Hooks
from agent_memory.storage.summarizing.policy import Trigger
from agent_memory.storage.summarizing.summary_installer import SummaryInstaller
from agent_memory.storage.summarizing.summary_maker import OpenRun, Proposal, SummaryMaker
from agent_memory.tokens import TokenCounter
from agent_memory.view import ChatView

_log = logging.getLogger(__name__)

_PAIR: Final = 2


class RunSummaries:
    """Has the part before a run summarized, at most once in the run.

    Args:
        maker: makes summaries.
        installer: stores them and puts them into the view.
        trigger: when a plain function is asked; None for a summarizer that decides itself.
        counter: estimates what a summary removes.
        hooks: asked before, and told afterwards.
        strict: whether :meth:`raise_failure` raises.
    """

    def __init__(
        self,
        maker: SummaryMaker,
        installer: SummaryInstaller,
        *,
        trigger: Trigger | None,
        counter: TokenCounter,
        hooks: Hooks,
        strict: bool,
    ) -> None:
        self._maker = maker
        self._installer = installer
        self._trigger = trigger
        self._counter = counter
        self._hooks = hooks
        self._strict = strict
        self._lock = threading.RLock()
        self._done = False
        self._failure: Exception | None = None

    def raise_failure(self) -> None:
        """Raise what the last attempt failed with, once, if the caller wants to know.

        Raises:
            SummarizerError: the summarizer failed; the messages are stored.
        """
        failure, self._failure = self._failure, None
        if failure is not None and self._strict:
            kind = type(failure) if isinstance(failure, SummarizerError) else SummarizerError
            raise kind(f"the messages are stored, but not summarized: {failure}") from failure

    async def ask(self, buffer: Buffer, run: OpenRun, occupancy: Occupancy) -> Usage | None:
        """Ask the summarizer if it is time; return what that cost."""
        view = buffer.view
        if view is None or not self._is_time(buffer, view):
            return None
        started = time.monotonic()
        before = self._tokens(view)
        buffer.waited_from = view.last
        try:
            spent = await self._summarize(buffer, view, run, occupancy)
        except Exception as error:  # noqa: BLE001  whatever it is, the run goes on
            await self._failed(buffer, error, started)
            spent = getattr(error, "usage", None)
        shown = buffer.view
        if shown is not None:
            occupancy.summarize(before, self._tokens(shown))
        return spent if isinstance(spent, Usage) else None

    def _is_time(self, buffer: Buffer, view: ChatView) -> bool:
        if self._done or view.last - buffer.waited_from < buffer.wait:
            return False
        return self._trigger is None or self._exceeded(view) is not None

    def _exceeded(self, view: ChatView) -> str | None:
        return None if self._trigger is None else self._trigger.exceeded(view.size, view.tokens)

    async def _summarize(
        self, buffer: Buffer, view: ChatView, run: OpenRun, occupancy: Occupancy
    ) -> Usage | None:
        generation = buffer.generation
        snapshot = self._maker.snapshot(view)
        reason = self._exceeded(view) or "context"
        request = CompactionRequest(key=buffer.key, reason=reason, history=tuple(snapshot.history))
        if not request.history or not await self._hooks.allows(request):
            return None
        proposal = await self._maker.propose(
            buffer,
            view,
            snapshot,
            reason,
            context_tokens=occupancy.tokens,
            run=run,
        )
        buffer.failures = 0
        if not isinstance(proposal, Proposal):
            buffer.wait = _PAIR
            self._done = proposal != "not_yet"
            return None
        self._done = True
        event = await self._installer.install(buffer, generation, proposal, time.monotonic())
        if event is not None:
            await self._hooks.emit(event)
        return proposal.record.usage

    async def _failed(self, buffer: Buffer, error: Exception, started: float) -> None:
        _log.warning("no new summary of %s; its messages are stored: %s", buffer.key, error)
        self._failure = error
        buffer.wait = _PAIR << min(buffer.failures, 30)
        buffer.failures += 1
        await self._hooks.emit(
            CompactionFailed(
                key=buffer.key,
                error=error,
                messages=0 if buffer.view is None else buffer.view.size,
                retry_after=buffer.wait,
                duration=time.monotonic() - started,
            )
        )

    def _tokens(self, view: ChatView) -> int:
        return sum(map(self._counter.count, view.newest(None)))
