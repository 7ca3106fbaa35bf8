"""How full a model's context is: what a provider reported, and estimates of what came since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from agent_memory.conversation.run_notes import run_notes
from agent_memory.log import LogSlice, SummaryRecord, retraction_of
from agent_memory.messages import ConversationMessage, Usage
from agent_memory.summarizing.view import ChatView
from agent_memory.tokens import TokenCounter

_MOST_OVER: Final = 2  # estimates err high, by less than this factor


class ContextSize:
    """The tokens that the next request will take, as far as they are known.

    Args:
        counter: estimates what no report covers.
        reported: tokens of the last report.

    Attributes:
        version: rises whenever messages leave the context. A report on an earlier version says
            nothing of what the next request will take.
    """

    def __init__(self, counter: TokenCounter, reported: int = 0) -> None:
        self.version = 0
        self._counter = counter
        self._reported = reported
        self._since = 0
        self._estimates: dict[str, int] = {}
        self._has_no_report = False

    @property
    def tokens(self) -> int:
        """The last report's prompt and reply, and an estimate of everything added since."""
        return max(0, self._reported + self._since)

    def report(self, usage: Usage, *, version: int | None = None) -> bool:
        """Take over what a provider reported: its prompt and reply are the context now.

        Args:
            usage: of a request and its reply.
            version: of the context that the request was made with; None for the present one.

        Returns:
            Whether it counts. No prompt is empty: a report without input tokens comes from a
            stream that ended without usage. Then the estimates stay, and the reply is estimated;
            so they do where the report is about an earlier version.
        """
        is_older = version is not None and version < self.version
        self._has_no_report = is_older or not usage.input_tokens
        if not self._has_no_report:
            self._start(usage.total_tokens)
        return not self._has_no_report

    def add(self, messages: Iterable[ConversationMessage], *, measured: bool = False) -> None:
        """Count messages.

        Args:
            messages: what has come.
            measured: whether the last report covers them already.
        """
        if measured and not self._has_no_report:
            return
        for message in messages:
            estimate = self._counter.count(message)
            self._estimates[message.id] = self._estimates.get(message.id, 0) + estimate
            self._since += estimate

    def remove(self, message: ConversationMessage) -> None:
        """Take off a message that was added, if no report covers it yet."""
        self._since -= self._estimates.pop(message.id, 0)

    def summarize(self, record: SummaryRecord) -> None:
        """Take off the estimate of what a summary removed, and add that of the summary.

        Estimates err high; so that this never says that nothing is left, half of what is left,
        by the same estimate, stays in any case.
        """
        self.version += 1
        tokens = self.tokens
        least = min(tokens, record.tokens_after // _MOST_OVER)
        left = max(tokens + record.tokens_after - record.tokens_before, least)
        self._since += left - tokens

    def start_over(self, messages: Iterable[ConversationMessage]) -> None:
        """Estimate everything: what was reported is not in the context any more."""
        self.version += 1
        self._start(0)
        self.add(messages)

    def _start(self, tokens: int) -> None:
        self._reported, self._since = tokens, 0
        self._estimates.clear()

    def estimate(self, messages: Iterable[ConversationMessage]) -> int:
        """Return about how many tokens messages take."""
        return sum(map(self._counter.count, messages))


def inherited(
    counter: TokenCounter,
    view: ChatView,
    recent: LogSlice,
    records: Sequence[SummaryRecord],
) -> ContextSize:
    """Return how full the context is that a thread's next run begins with.

    The newest note of a run says what it was then. What came later is added: replies that report
    their usage, estimates of other messages, and summaries. Without a note that fits, the view
    itself is estimated.

    Args:
        counter: estimates.
        view: what the run begins with.
        recent: the newest entries of the log.
        records: the thread's summary records up to the one that the view shows, oldest first.
    """
    found = next(run_notes(recent.entries), None)
    if found is None:
        return _of_view(counter, view, records)
    index, note = found
    since = recent.entries[index + 1 :]
    later = _later_than(records, note.record_id)
    if later is None or note.floor != view.floor or any(map(retraction_of, since)):
        return _of_view(counter, view, records)
    context = ContextSize(counter, note.context_tokens)
    for message in LogSlice(since).messages:
        context.add([message])
        if message.usage is not None and context.report(message.usage):
            later = [record for record in later if record.created_at > message.timestamp]
    for record in later:
        context.summarize(record)
    return context


def _later_than(
    records: Sequence[SummaryRecord], record_id: str | None
) -> Sequence[SummaryRecord] | None:
    """The records after the named one; None if it is not among them."""
    if record_id is None:
        return records
    for index, record in enumerate(records):
        if record.id == record_id:
            return records[index + 1 :]
    return None


def _of_view(
    counter: TokenCounter, view: ChatView, records: Sequence[SummaryRecord]
) -> ContextSize:
    """Estimate a view; use those reports that were made with what it shows in the context."""
    context = ContextSize(counter)
    since = records[-1].created_at if records else None
    for message in (*view.head, *view.summary, *view.tail):
        context.add([message])
        usage = message.usage
        if usage is None or message.position is None or message.position <= view.covered_through:
            continue
        covers_it = usage.total_tokens * _MOST_OVER > context.tokens
        if covers_it and (since is None or message.timestamp > since):
            context.report(usage)
    return context
