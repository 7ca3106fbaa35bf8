"""Asking a summarizer, and turning its answer into a summary that may be installed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs

from agent_memory.clipping import clip_summary
from agent_memory.compaction import Compaction, Snapshot
from agent_memory.errors import InvalidSummaryError, SummarizerError
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.providers.reading import must_stay
from agent_memory.records import Covered, SummaryRecord
from agent_memory.storage.summarizing.buffers import Buffer
from agent_memory.storage.summarizing.open_run import OpenRun
from agent_memory.storage.summarizing.pacing import take_turn
from agent_memory.storage.summarizing.policy import Limits, Trigger
from agent_memory.summarizers.base import (
    Summarizer,
    SummarizerObject,
    SummaryResult,
    summarizer_name,
)
from agent_memory.summarizers.calling import SummarizerCall
from agent_memory.tokens import TokenCounter
from agent_memory.view import ChatView

_log = logging.getLogger(__name__)
T = TypeVar("T")

_OFF_LOOP: Final = 500  # messages; pure work on more of them is done in a worker thread


@attrs.frozen
class Proposal:
    """A summary that may be installed.

    Args:
        view: the view it was made from.
        snapshot: what the summarizer was given.
        compaction: what the view becomes.
        record: what is stored of it.
        clipped: whether it was too long and has been cut.
    """

    view: ChatView
    snapshot: Snapshot
    compaction: Compaction
    record: SummaryRecord
    clipped: bool


@attrs.frozen
class _Answer:
    messages: Sequence[ConversationMessage]
    by: str
    keep_at_least: int = 0
    usage: Usage | None = None
    last_run_id: str | None = None
    summary_id: str = ""


class SummaryMaker:
    """Makes proposals.

    Args:
        summarizer: what is asked.
        fallback: what is asked when it fails, or None.
        trigger: how much to keep.
        limits: how long it may take and how long a summary may be.
        counter: counts tokens.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        fallback: Summarizer | None,
        trigger: Trigger,
        limits: Limits,
        counter: TokenCounter,
    ) -> None:
        self._summarizer = summarizer
        self._fallback = fallback
        self._trigger = trigger
        self._limits = limits
        self._counter = counter

    def snapshot(self, view: ChatView) -> Snapshot:
        """Return what a summarizer may be given of the view now."""
        return view.snapshot(
            max_head_tokens=self._limits.max_head_tokens, count=self._counter.count
        )

    def is_worth_it(self, view: ChatView, reason: str) -> bool:
        """Whether a view still exceeds the limit without what is never summarized."""
        if not any(map(must_stay, view.tail)):
            return True
        history = self.snapshot(view).history
        if reason == "trigger_at":
            return len(history) > self._trigger.messages
        return self._tokens(history) > (self._trigger.trigger_tokens or 0)

    async def propose(
        self,
        buffer: Buffer,
        view: ChatView,
        snapshot: Snapshot,
        reason: str,
        *,
        context_tokens: int | None = None,
        run: OpenRun | None = None,
        bill: Callable[[Usage], object] | None = None,
    ) -> Proposal | str:
        """Return a proposal, or why there is none.

        Args:
            buffer: whose call it becomes.
            view: what the snapshot was taken of.
            snapshot: what the summarizer is given.
            reason: why it is asked.
            context_tokens: how full the model's context is; None for an estimate of the history.
            run: the run still being written, which is never summarized.
            bill: told what each answer and each failure cost, whatever comes of it.

        Returns:
            A proposal, or ``"not_yet"``, ``"nothing_to_gain"`` or ``"refused"``.

        Raises:
            SummarizerError: the summarizer, and the fallback if there is one, failed.
        """
        if context_tokens is None:
            context_tokens = await off_loop(snapshot, lambda: self._tokens(snapshot.history))
        propose = partial(
            self._propose,
            buffer,
            view,
            snapshot,
            reason,
            context_tokens=context_tokens,
            run=run,
            bill=bill or _nobody,
        )
        try:
            return await propose(self._summarizer)
        except SummarizerError as error:
            if self._fallback is None:
                raise
            _log.warning("the fallback summarizes %s: %s", buffer.key, error)
            return await propose(self._fallback)

    async def _propose(
        self,
        buffer: Buffer,
        view: ChatView,
        snapshot: Snapshot,
        reason: str,
        summarizer: Summarizer,
        *,
        context_tokens: int,
        run: OpenRun | None,
        bill: Callable[[Usage], object],
    ) -> Proposal | str:
        """Return what one summarizer proposes; an answer that is no summary is a failure too."""
        answer = await self._ask(buffer, snapshot, context_tokens, summarizer, bill)
        if answer is None:
            return "not_yet"
        if run is not None:
            keep = run.kept_at_least(snapshot, answer.last_run_id)
            if keep is None:
                return "refused"
            answer = attrs.evolve(answer, keep_at_least=keep)
        return await off_loop(
            snapshot, lambda: self._understand(view, snapshot, answer, reason, run)
        )

    async def _ask(
        self,
        buffer: Buffer,
        snapshot: Snapshot,
        context_tokens: int,
        summarizer: Summarizer,
        bill: Callable[[Usage], object],
    ) -> _Answer | None:
        call = SummarizerCall(
            summarizer,
            snapshot.history,
            keep_last=self._trigger.keep_last,
            context_tokens=context_tokens,
        )
        buffer.calls = (*(other for other in buffer.calls if not other.done()), call)
        try:
            returned = await call.answer(self._limits.summarizer_timeout)
        except SummarizerError as error:
            bill(_spent(error) or _spent(error.__cause__) or Usage())
            raise
        by = summarizer_name(summarizer)
        if not isinstance(summarizer, SummarizerObject):
            return _Answer(returned, by)
        if returned is None:
            return None
        if not isinstance(returned, SummaryResult):
            raise InvalidSummaryError(
                f"summarize() must return a SummaryResult or None, not {type(returned).__name__}"
            )
        bill(returned.usage or Usage())
        return _Answer(
            returned.messages,
            by,
            keep_at_least=2 * self._trigger.keep_last,
            usage=returned.usage,
            last_run_id=returned.last_summarized_run_id,
            summary_id=returned.summary_id,
        )

    def _understand(
        self,
        view: ChatView,
        snapshot: Snapshot,
        answer: _Answer,
        reason: str,
        run: OpenRun | None,
    ) -> Proposal | str:
        compaction = snapshot.interpret(answer.messages, keep_at_least=answer.keep_at_least)
        if run is not None:
            compaction = run.with_own_summary(compaction, snapshot, answer.summary_id)
        limit, clipped = self._limits.max_summary_tokens, False
        if limit is not None:
            block = clip_summary(compaction.block, limit, self._counter.count)
            clipped = block != compaction.block
            compaction = attrs.evolve(compaction, block=block)
        record = self._record(view, snapshot, compaction, answer, reason)
        if not _gains(record, reason):
            return "nothing_to_gain"
        return Proposal(view, snapshot, compaction, record, clipped)

    def _record(
        self,
        view: ChatView,
        snapshot: Snapshot,
        compaction: Compaction,
        answer: _Answer,
        reason: str,
    ) -> SummaryRecord:
        reached = snapshot.tail[compaction.cut - 1] if compaction.cut else None
        after = [*compaction.block, *snapshot.given_from(compaction.cut)]
        return SummaryRecord(
            summary=compaction.block,
            head=compaction.head,
            position=view.reach if reached is None else reached.position or 0,
            message_id=(view.reach_id or "") if reached is None else reached.id,
            floor=view.floor,
            covered=view.covered_by(compaction) or Covered(0, 0, 0),
            known=view.last,
            told=max(view.told, compaction.told),
            replaces=view.record_id or view.follows,
            summarizer=answer.by,
            reason=reason,
            messages_before=len(snapshot.history),
            messages_after=len(after),
            tokens_before=self._tokens(snapshot.history),
            tokens_after=self._tokens(after),
            usage=answer.usage,
        )

    def _tokens(self, messages: Sequence[ConversationMessage]) -> int:
        return sum(map(self._counter.count, messages))


def _nobody(usage: Usage) -> None:
    """Bill nobody: what a summary cost is on its record all the same."""


def _spent(error: BaseException | None) -> Usage | None:
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else None


def _gains(record: SummaryRecord, reason: str) -> bool:
    fewer = record.messages_after < record.messages_before
    smaller = record.tokens_after < record.tokens_before
    return {"trigger_at": fewer, "trigger_tokens": smaller}.get(reason, fewer or smaller)


async def off_loop(snapshot: Snapshot, work: Callable[[], T]) -> T:
    """Do pure work in its turn, or in a worker thread where it could hold up the loop."""
    if len(snapshot.tail) <= _OFF_LOOP:
        await take_turn()
        return work()
    return await asyncio.to_thread(work)
