"""Asking a summarizer for the draft of a summary, and checking what it answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

import attrs

from agent_memory.errors import InvalidSummaryError, SummarizerError
from agent_memory.log import Covered, SummaryRecord
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.storage._engine.event_loops import SharedTask, run_fairly
from agent_memory.summarizers.base import (
    Summarizer,
    SummarizerObject,
    SummaryResult,
    new_summary_id,
    summarizer_name,
)
from agent_memory.summarizers.bounds import DEFAULT_KEEP_RUNS, KeepBounds
from agent_memory.summarizing.buffers import Buffer
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


@attrs.define(eq=False)
class Attempt:
    """One try at a compaction of a chat.

    Args:
        buffer: of the chat.
        task: what others wait for.
        reason: why the summarizer is asked.
        context: the run in progress; None where there are no runs.
        started: when it began.

    Attributes:
        view: what is compacted; set, with the next two, when it is the attempt's turn.
        generation: the buffer's at that moment.
        snapshot: what the summarizer is given.
    """

    buffer: Buffer
    task: SharedTask[Exception]
    reason: str
    context: RunContext | None = None
    started: float = attrs.field(factory=time.monotonic)
    view: ChatView = attrs.field(init=False)
    generation: int = attrs.field(init=False)
    snapshot: Snapshot = attrs.field(init=False)

    def begin(self, view: ChatView, snapshot: Snapshot) -> None:
        """Take the view as it is now."""
        self.view, self.generation, self.snapshot = view, self.buffer.generation, snapshot

    @property
    def is_current(self) -> bool:
        """Whether no other attempt has taken its place, as one may whose loop had stopped."""
        return self.buffer.attempts.task is self.task

    @property
    def run(self) -> OpenRun | None:
        """The run in progress."""
        return None if self.context is None else self.context.run

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
class _Source:
    """A summarizer, its name, and whether a :class:`SummaryResult` is what it answers."""

    summarizer: Summarizer
    name: str
    is_object: bool

    @classmethod
    def of(cls, summarizer: Summarizer) -> _Source:
        is_object = isinstance(summarizer, SummarizerObject)
        return cls(summarizer, summarizer_name(summarizer), is_object)


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
        self._source = _Source.of(summarizer)
        self._fallback = None if options.fallback is None else _Source.of(options.fallback)
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

    async def draft(self, attempt: Attempt) -> Draft | str:
        """Return a draft, or why there is none.

        Returns:
            A draft, or ``"not_yet"``, ``"nothing_to_gain"``, ``"more_tokens"`` or
            ``"refused"``.

        Raises:
            SummarizerError: the summarizer, and the fallback if there is one, failed.
        """
        try:
            return await self._draft(attempt, self._source)
        except SummarizerError as error:
            if self._fallback is None:
                raise
            _log.warning("the fallback summarizes %s: %s", attempt.buffer.key, str(error))
            return await self._draft(attempt, self._fallback)

    # ------------------------------------------------------------------ how much may be kept

    def _bounds(self, attempt: Attempt, source: _Source) -> KeepBounds | None:
        """Return how much may be kept; None where nothing can leave the view."""
        snapshot, context = attempt.snapshot, attempt.context
        least = snapshot.last_cut(self._least(attempt, source))
        cuts = [cut for cut in snapshot.cuts if cut <= least] or [least]
        if len(cuts) == 1 and not snapshot.demoted:
            return None
        history = snapshot.history
        sums = list(accumulate(map(self._counter.count, reversed(history)), initial=0))
        max_messages: int | None = self._options.trigger_messages
        max_tokens = self._options.trigger_tokens
        if context is not None:
            # In a conversation with a token limit, the number of messages does not matter.
            divided = max_tokens is None and self.divides(snapshot, context)
            max_messages = max_messages if divided else None
            if max_tokens is not None:
                # The system prompt and the tools take up room that no summary frees.
                max_tokens = max(0, max_tokens - max(0, context.tokens - sums[-1]))
        return KeepBounds(
            cuts=cuts,
            tokens=[sums[len(history) - cut] for cut in cuts],
            length=len(history),
            total=sums[-1],
            max_messages=max_messages,
            max_tokens=max_tokens,
            keep_runs=None if context is None else DEFAULT_KEEP_RUNS,
            run_id=None if context is None else context.run.id,
        )

    def _least(self, attempt: Attempt, source: _Source) -> int:
        """Return how many of the newest messages stay, whatever the summarizer keeps.

        A function was given the number to keep, and what it returns is taken as it is. The run in
        progress stays whole, unless it exceeds the trigger by itself.
        """
        pairs = 2 * self._options.keep_last if source.is_object else 0
        if attempt.context is None:
            return pairs
        own = len(attempt.snapshot.given_after(attempt.context.run.start))
        divided = self.divides(attempt.snapshot, attempt.context)
        return min(pairs, own) if divided else own

    def divides(self, snapshot: Snapshot, context: RunContext) -> bool:
        """Whether a run in progress exceeds the trigger by itself, with a summary before it."""
        own, limit = snapshot.given_after(context.run.start), self._options.trigger_tokens
        if limit is None:
            return len(snapshot.summary) + len(own) > self._options.trigger_messages
        fixed = max(0, context.tokens - self.tokens(snapshot.history))
        summary = max(self.tokens(snapshot.summary), limit // 8)
        return fixed + summary + self.tokens(own) > limit

    # ------------------------------------------------------------------------------- asking

    async def _draft(self, attempt: Attempt, source: _Source) -> Draft | str:
        """Return the draft of one summarizer; an answer that is no summary is a failure too."""
        length = len(attempt.snapshot.tail)
        bounds = await run_fairly(length, lambda: self._bounds(attempt, source))
        if bounds is None:
            return "nothing_to_gain"
        answer = await self._ask(attempt, bounds, source)
        if source.is_object and answer is None:
            return "not_yet"
        return await run_fairly(length, lambda: self._understand(attempt, source, answer))

    async def _ask(self, attempt: Attempt, bounds: KeepBounds, source: _Source) -> Any:
        """Return what the summarizer answers: of an object a result, or None."""
        context = attempt.context
        call = SummarizerTask(
            source.summarizer,
            attempt.snapshot.history,
            keep_last=self._options.keep_last,
            context_tokens=bounds.total if context is None else context.tokens,
            bounds=bounds,
        )
        attempt.buffer.attempts.begin_call(call)
        try:
            answer = await call.answer(self._options.summarizer_timeout)
        except SummarizerError as error:
            attempt.bill(_spent(error) or _spent(error.__cause__) or Usage())
            raise
        if not source.is_object or answer is None:
            return answer
        if not isinstance(answer, SummaryResult):
            raise InvalidSummaryError(
                f"summarize() must return a SummaryResult or None, not {type(answer).__name__}"
            )
        attempt.bill(answer.usage or Usage())
        return answer

    # ----------------------------------------------------------------- what the answer means

    def _understand(self, attempt: Attempt, source: _Source, answer: Any) -> Draft | str:
        """Return the draft that an answer stands for; storages and runs share this reading."""
        snapshot, run = attempt.snapshot, attempt.run
        result: SummaryResult | None = answer if source.is_object else None
        keep = self._least(attempt, source)
        if result is not None and result.last_summarized_run_id is not None:
            follows = self._after_run(snapshot, run, result.last_summarized_run_id)
            if follows is None:
                return "refused"
            keep = max(keep, follows)
        compaction = snapshot.interpret(
            answer if result is None else result.messages,
            keep_at_least=keep,
            run=run,
            keep_turn=True,
            may_be_empty=result is not None,
        )
        if run is not None:
            summary_id = "" if result is None else result.summary_id
            compaction = _with_own_run(compaction, snapshot, run, summary_id)
        limit, clipped = self._options.max_summary_tokens, False
        if limit is not None:
            summary = clip_summary(compaction.summary, limit, self._counter.count)
            clipped = summary != compaction.summary
            compaction = attrs.evolve(compaction, summary=summary)
        usage = None if result is None else result.usage
        record = self._record(attempt, compaction, source.name, usage)
        return _loss(record, attempt.reason) or Draft(compaction, record, clipped)

    def _after_run(self, snapshot: Snapshot, run: OpenRun | None, name: str) -> int | None:
        """Return how many messages follow the last block of a run that is summarized as a whole.

        Returns:
            None if it is the run in progress.

        Raises:
            InvalidSummaryError: the history has no such run.
        """
        ends = [
            message.position or 0
            for message in snapshot.history
            if message.run_id == name and (run is None or (message.position or 0) <= run.start)
        ]
        if ends:
            return len(snapshot.given_after(ends[-1]))
        if run is not None and name == run.id:
            _log.warning("a summary of the run %r, still being written, is refused", run.id)
            return None
        raise InvalidSummaryError(
            f"last_summarized_run_id is {name!r}, which is not a run of the history; name the "
            "newest run that is summarized as a whole, or None"
        )

    def _record(
        self, attempt: Attempt, compaction: Compaction, summarizer: str, usage: Usage | None
    ) -> SummaryRecord:
        view, snapshot = attempt.view, attempt.snapshot
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
            summarizer=summarizer,
            reason=attempt.reason,
            messages_before=len(snapshot.history),
            messages_after=len(after),
            tokens_before=self.tokens(snapshot.history),
            tokens_after=self.tokens(after),
            usage=usage,
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
