"""Asking a summarizer for the draft of a summary, and checking what it answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

import attrs

from agent_memory.errors import InvalidSummaryError, SummarizerError
from agent_memory.log import Covered, SummaryRecord
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.storage._engine.event_loops import run_fairly
from agent_memory.summarizers.base import (
    Summarizer,
    SummarizerObject,
    SummaryResult,
    new_summary_id,
    summarizer_name,
)
from agent_memory.summarizers.bounds import DEFAULT_KEEP_RUNS, KeepBounds
from agent_memory.summarizing.buffers import Attempts
from agent_memory.summarizing.compaction import Compaction, OpenRun, Snapshot
from agent_memory.summarizing.options import SummarizingOptions
from agent_memory.summarizing.summarizer_call import SummarizerTask, clip_summary
from agent_memory.summarizing.view import ChatView
from agent_memory.tokens import TokenCounter

_log = logging.getLogger(__name__)

_HEADING: Final = 64  # tokens of a summary's frame; see _loss


@attrs.frozen(kw_only=True)
class RunContext:
    """What a run in progress adds to an attempt.

    Args:
        run: the run. It stays whole, unless it exceeds the limit by itself.
        tokens: how full the model's context is.
        bill: called with the cost of each answer and each failure, whatever comes of it.
        summarized: called with the record that the view shows afterwards; returns how full the
            context is then.
    """

    run: OpenRun
    tokens: int
    bill: Callable[[Usage], object]
    summarized: Callable[[SummaryRecord], int]


@attrs.frozen
class Request:
    """What a summarizer is asked for.

    Args:
        view: what the snapshot was taken of.
        generation: the buffer's at that moment.
        snapshot: what the summarizer is given.
        reason: why it is asked.
        context: the run in progress; None where there are no runs.
        started: when the attempt began.
    """

    view: ChatView
    generation: int
    snapshot: Snapshot
    reason: str
    context: RunContext | None = None
    started: float = attrs.field(factory=time.monotonic)

    @property
    def run(self) -> OpenRun | None:
        """The run in progress."""
        return None if self.context is None else self.context.run

    @property
    def context_tokens(self) -> int | None:
        """How full the model's context is; None for an estimate of the history."""
        return None if self.context is None else self.context.tokens

    def bill(self, usage: Usage) -> None:
        """Pass on what an answer or a failure cost."""
        if self.context is not None:
            self.context.bill(usage)


@attrs.frozen
class Draft:
    """A summary that may be installed.

    Args:
        compaction: what the view becomes.
        record: what is stored of it.
        clipped: whether it was too long and has been cut.
    """

    compaction: Compaction
    record: SummaryRecord
    clipped: bool


@attrs.frozen
class _Answer:
    messages: Sequence[ConversationMessage]
    by: str
    usage: Usage | None = None
    last_run_id: str | None = None
    summary_id: str = ""
    is_result: bool = False


class Drafter:
    """Makes drafts of summaries.

    Args:
        summarizer: what is asked.
        options: how much to keep, how long it may take, and what is asked when it fails.
        counter: counts tokens.
    """

    def __init__(
        self, summarizer: Summarizer, options: SummarizingOptions, counter: TokenCounter
    ) -> None:
        self._summarizer = summarizer
        self._options = options
        self._counter = counter

    def snapshot(self, view: ChatView) -> Snapshot:
        """Return what a summarizer may be given of the view now."""
        return view.snapshot(
            max_head_tokens=self._options.max_head_tokens, count=self._counter.count
        )

    def is_worth_it(self, view: ChatView, reason: str) -> bool:
        """Whether a view still exceeds the limit without what is never summarized."""
        if reason == "context" or not view.has_pins:
            return True
        history = self.snapshot(view).history
        if reason == "trigger_at":
            return len(history) > self._options.trigger_messages
        return self.tokens(history) > (self._options.trigger_tokens or 0)

    async def draft(self, key: ChatKey, attempts: Attempts, request: Request) -> Draft | str:
        """Return a draft, or why there is none.

        Args:
            key: of the chat.
            attempts: to which the call of a summarizer belongs.
            request: what is asked for.

        Returns:
            A draft, or ``"not_yet"``, ``"nothing_to_gain"``, ``"more_tokens"`` or
            ``"refused"``.

        Raises:
            SummarizerError: the summarizer, and the fallback if there is one, failed.
        """
        try:
            return await self._draft(attempts, request, self._summarizer)
        except SummarizerError as error:
            if self._options.fallback is None:
                raise
            _log.warning("the fallback summarizes %s: %s", key, str(error))
            return await self._draft(attempts, request, self._options.fallback)

    # ------------------------------------------------------------------ how much may be kept

    def _bounds(self, request: Request, summarizer: Summarizer) -> KeepBounds | None:
        """Return how much may be kept; None where nothing can leave the view."""
        snapshot, run = request.snapshot, request.run
        is_result = isinstance(summarizer, SummarizerObject)
        least = snapshot.last_cut(self._least(request, is_result=is_result))
        cuts = [cut for cut in snapshot.cuts if cut <= least] or [least]
        if len(cuts) == 1 and not snapshot.demoted:
            return None
        history = snapshot.history
        sums = list(accumulate(map(self._counter.count, reversed(history)), initial=0))
        max_messages: int | None = self._options.trigger_messages
        max_tokens = self._options.trigger_tokens
        if run is not None:
            # In a conversation with a token limit, the number of messages does not matter.
            fixed = max(0, (request.context_tokens or 0) - sums[-1])
            divided = max_tokens is None and self.divides(snapshot, run, request.context_tokens)
            max_messages = max_messages if divided else None
            # The system prompt and the tools take up room that no summary frees.
            max_tokens = None if max_tokens is None else max(0, max_tokens - fixed)
        return KeepBounds(
            cuts=cuts,
            tokens=[sums[len(history) - cut] for cut in cuts],
            length=len(history),
            total=sums[-1],
            max_messages=max_messages,
            max_tokens=max_tokens,
            keep_runs=None if run is None else DEFAULT_KEEP_RUNS,
            run_id=None if run is None else run.id,
        )

    def _least(self, request: Request, *, is_result: bool) -> int:
        """Return how many of the newest messages stay, whatever the summarizer keeps.

        A function was given the number to keep, and what it returns is taken as it is. The run in
        progress stays whole, unless it exceeds the trigger by itself.

        Args:
            request: what is asked for.
            is_result: whether a :class:`SummaryResult` answers it.
        """
        pairs = 2 * self._options.keep_last if is_result else 0
        if request.run is None:
            return pairs
        own = len(request.snapshot.given_after(request.run.start))
        divided = self.divides(request.snapshot, request.run, request.context_tokens)
        return min(pairs, own) if divided else own

    def divides(self, snapshot: Snapshot, run: OpenRun, context_tokens: int | None) -> bool:
        """Whether a run in progress exceeds the trigger by itself, with a summary before it."""
        own, limit = snapshot.given_after(run.start), self._options.trigger_tokens
        if limit is None:
            return len(snapshot.summary) + len(own) > self._options.trigger_messages
        fixed = max(0, (context_tokens or 0) - self.tokens(snapshot.history))
        summary = max(self.tokens(snapshot.summary), limit // 8)
        return fixed + summary + self.tokens(own) > limit

    # ------------------------------------------------------------------------------- asking

    async def _draft(
        self, attempts: Attempts, request: Request, summarizer: Summarizer
    ) -> Draft | str:
        """Return the draft of one summarizer; an answer that is no summary is a failure too."""
        bounds = await run_fairly(
            len(request.snapshot.tail), lambda: self._bounds(request, summarizer)
        )
        if bounds is None:
            return "nothing_to_gain"
        answer = await self._ask(attempts, request, bounds, summarizer)
        if answer is None:
            return "not_yet"
        return await run_fairly(
            len(request.snapshot.tail), lambda: self._understand(request, answer)
        )

    async def _ask(
        self, attempts: Attempts, request: Request, bounds: KeepBounds, summarizer: Summarizer
    ) -> _Answer | None:
        tokens = request.context_tokens
        call = SummarizerTask(
            summarizer,
            request.snapshot.history,
            keep_last=self._options.keep_last,
            context_tokens=bounds.total if tokens is None else tokens,
            bounds=bounds,
        )
        attempts.begin_call(call)
        try:
            returned = await call.answer(self._options.summarizer_timeout)
        except SummarizerError as error:
            request.bill(_spent(error) or _spent(error.__cause__) or Usage())
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
        request.bill(returned.usage or Usage())
        return _Answer(
            returned.messages,
            by,
            usage=returned.usage,
            last_run_id=returned.last_summarized_run_id,
            summary_id=returned.summary_id,
            is_result=True,
        )

    # ----------------------------------------------------------------- what the answer means

    def _understand(self, request: Request, answer: _Answer) -> Draft | str:
        """Return the draft that an answer stands for; storages and runs share this reading."""
        view, snapshot, run = request.view, request.snapshot, request.run
        keep = self._kept_at_least(request, answer)
        if keep is None:
            return "refused"
        compaction = snapshot.interpret(
            answer.messages,
            keep_at_least=keep,
            run=run,
            keep_turn=True,
            may_be_empty=answer.is_result,
        )
        if run is not None:
            compaction = _with_own_run(compaction, snapshot, run, answer.summary_id)
        limit, clipped = self._options.max_summary_tokens, False
        if limit is not None:
            summary = clip_summary(compaction.summary, limit, self._counter.count)
            clipped = summary != compaction.summary
            compaction = attrs.evolve(compaction, summary=summary)
        record = self._record(view, snapshot, compaction, answer, request.reason)
        lost = _loss(record, request.reason)
        return lost or Draft(compaction, record, clipped)

    def _kept_at_least(self, request: Request, answer: _Answer) -> int | None:
        """Return how many of the newest messages stay, even if the answer keeps fewer.

        A result that names the newest run it summarized keeps what follows the last
        block of that run.

        Returns:
            None if the result names the run in progress.

        Raises:
            InvalidSummaryError: the history has no such run.
        """
        snapshot, run, name = request.snapshot, request.run, answer.last_run_id
        least = self._least(request, is_result=answer.is_result)
        if name is None:
            return least
        before = None if run is None else run.start
        ends = [
            message.position or 0
            for message in snapshot.history
            if message.run_id == name and (before is None or (message.position or 0) <= before)
        ]
        if ends:
            return max(least, len(snapshot.given_after(ends[-1])))
        if run is not None and name == run.id:
            _log.warning("a summary of the run %r, still being written, is refused", run.id)
            return None
        raise InvalidSummaryError(
            f"last_summarized_run_id is {name!r}, which is no run of the history; name the "
            "newest run that is summarized as a whole, or None"
        )

    def _record(
        self,
        view: ChatView,
        snapshot: Snapshot,
        compaction: Compaction,
        answer: _Answer,
        reason: str,
    ) -> SummaryRecord:
        reached = snapshot.tail[compaction.cut - 1] if compaction.cut else None
        after = [*compaction.summary, *snapshot.given_from(compaction.cut)]
        return SummaryRecord(
            summary=compaction.summary,
            head=compaction.head,
            position=view.covered_through if reached is None else reached.position or 0,
            message_id=(view.covered_through_id or "") if reached is None else reached.id,
            floor=view.floor,
            covered=view.covered_by(compaction) or Covered(0, 0, 0),
            known=view.last,
            told=max(view.summarized_through, compaction.summarized_through),
            replaces=view.record_id or view.supersedes,
            summarizer=answer.by,
            reason=reason,
            messages_before=len(snapshot.history),
            messages_after=len(after),
            tokens_before=self.tokens(snapshot.history),
            tokens_after=self.tokens(after),
            usage=answer.usage,
        )

    def tokens(self, messages: Sequence[ConversationMessage]) -> int:
        """Return about how many tokens messages take."""
        return sum(map(self._counter.count, messages))


def _with_own_run(
    compaction: Compaction, snapshot: Snapshot, run: OpenRun, summary_id: str
) -> Compaction:
    """Return a compaction with a run id of its own for the summary."""
    known = {id(message) for message in snapshot.history}
    taken = {run.id, *(message.run_id for message in snapshot.history)}
    name = new_summary_id() if not summary_id or summary_id in taken else summary_id
    summary = [
        message if id(message) in known else attrs.evolve(message, run_id=name)
        for message in compaction.summary
    ]
    return attrs.evolve(compaction, summary=tuple(summary))


def _spent(error: BaseException | None) -> Usage | None:
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else None


def _loss(record: SummaryRecord, reason: str) -> str | None:
    """Why a summary is not installed; None if it shortens the view and adds no tokens to it."""
    messages = record.messages_after - record.messages_before
    tokens = record.tokens_after - record.tokens_before
    if messages < 0:
        # In a chat of very short messages the summary's frame alone may outweigh them.
        tokens -= _HEADING
    if messages < 0 < tokens:
        return "more_tokens"
    shorter = {"trigger_at": messages < 0, "trigger_tokens": tokens < 0}
    gained = shorter.get(reason, messages < 0 or tokens < 0)
    return None if gained and messages <= 0 and tokens <= 0 else "nothing_to_gain"
