"""The snapshot that a summarizer is given, and the compaction that its answer means. Pure.

The view of a chat is *head + summary + tail*. The head is what no summarizer may touch. The live
summary is messages a summarizer made, and raw messages it chose to keep before the recent ones.
The tail is raw and contiguous up to the newest position known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import attrs

from agent_memory import turns
from agent_memory.errors import InvalidSummaryError
from agent_memory.log import Covered
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage
from agent_memory.summarizing.summarizer_call import (
    KnownMessages,
    check_order,
    checked_answer,
    is_rewritten,
)
from agent_memory.turns import facts_of, must_stay

_QUESTIONS: Final = 2  # how many of the newest unanswered questions are kept
_QUESTION_MESSAGES: Final = 4  # how many messages of each
_AWAITED: Final = 2  # how many exchanges of other runs are kept while they wait for results


@attrs.frozen
class OpenRun:
    """A run that is still being written.

    Args:
        id: its run id.
        start: the newest position of the log before it.
    """

    id: str
    start: int


@attrs.frozen
class Compaction:
    """What the view becomes.

    Args:
        head: what is shown first now: pinned messages before the cut have joined it.
        summary: what stands for the messages before the cut.
        cut: how many messages of the snapshot's tail are replaced.
        dropped: the raw messages that were verbatim before and are covered now, if there are any.
        summarized_through: the highest position of a message that the summarizer was given and
            did not itself keep; 0 without one.
    """

    head: tuple[ConversationMessage, ...]
    summary: tuple[ConversationMessage, ...]
    cut: int
    dropped: Covered | None
    summarized_through: int = 0


@attrs.define(eq=False, slots=False)
class Snapshot:
    """The part of a view that is handed to a summarizer.

    Args:
        head: what no summarizer may touch.
        summary: the live summary.
        tail: the raw messages after it.
        fresh: whether nothing of the chat precedes the tail, so that system messages at its
            beginning are its leading ones.
        max_head_tokens: pins that do not fit any more become ordinary, the oldest first; None
            for no limit.
        count: counts the tokens of a message.
    """

    head: tuple[ConversationMessage, ...]
    summary: tuple[ConversationMessage, ...]
    tail: tuple[ConversationMessage, ...]
    fresh: bool
    max_head_tokens: int | None = None
    count: Callable[[ConversationMessage], int] = lambda _message: 0

    @cached_property
    def _groups(self) -> list[turns.Group]:
        return turns.group(self.tail)

    @cached_property
    def leading(self) -> int:
        """How many messages at the tail's beginning are the chat's leading system messages."""
        return turns.leading_system(self.tail) if self.fresh else 0

    @cached_property
    def _pins(self) -> tuple[list[ConversationMessage], frozenset[int]]:
        """The head's messages that become ordinary, and the tail's indexes that are withheld."""
        pinned = [
            group
            for group in self._groups
            if any(map(must_stay, self.tail[group.start : group.stop]))
        ]
        in_head = turns.group(self.head)
        pins = [self.head[group.start : group.stop] for group in in_head]
        pins += [self.tail[group.start : group.stop] for group in pinned]
        ordinary = self._too_many(pins)
        demoted = [
            message
            for group in in_head[: len(ordinary)]
            if not _is_system(members := self.head[group.start : group.stop])
            for message in members
        ]
        kept = pinned[max(0, len(ordinary) - len(in_head)) :]
        withheld = frozenset(range(self.leading)).union(
            *(range(group.start, group.stop) for group in kept)
        )
        return demoted, withheld

    def _too_many(
        self, pins: Sequence[Sequence[ConversationMessage]]
    ) -> Sequence[Sequence[ConversationMessage]]:
        """Return the oldest of these groups, up to the newest that does not fit any more."""
        if self.max_head_tokens is None:
            return ()
        leading = self.tail[: self.leading]
        fixed = [message for group in pins if _is_system(group) for message in group]
        room = self.max_head_tokens - sum(map(self.count, [*leading, *fixed]))
        for index in range(len(pins) - 1, -1, -1):
            if _is_system(pins[index]):
                continue
            room -= sum(map(self.count, pins[index]))
            if room < 0:
                return pins[: index + 1]
        return ()

    @property
    def demoted(self) -> list[ConversationMessage]:
        """The messages of the head that are ordinary from now on, in order."""
        return self._pins[0]

    @property
    def _withheld(self) -> frozenset[int]:
        return self._pins[1]

    @cached_property
    def _given(self) -> list[int]:
        return [index for index in range(len(self.tail)) if index not in self._withheld]

    @cached_property
    def _before_tail(self) -> list[ConversationMessage]:
        """The summary, with the messages demoted from the head inserted by position."""
        summary = list(self.summary)
        for message in self.demoted:
            summary.insert(_place(summary, message), message)
        return summary

    @cached_property
    def history(self) -> list[ConversationMessage]:
        """What the summarizer is given: the summary, then the tail without what is withheld."""
        return [*self._before_tail, *(self.tail[index] for index in self._given)]

    def given_from(self, index: int) -> list[ConversationMessage]:
        """What the summarizer is given of the tail from `index` on."""
        return [self.tail[given] for given in self._given if given >= index]

    def given_after(self, position: int) -> list[ConversationMessage]:
        """What the summarizer is given of the tail beyond a position of the log."""
        return [m for m in self.given_from(0) if (m.position or 0) > position]

    @property
    def is_cuttable(self) -> bool:
        """Whether anything can leave the tail: it is more than one group."""
        return self.last_cut(1) > len(self._before_tail)

    def last_cut(self, keep_at_least: int) -> int:
        """Return the last index of the history at which the kept part may begin.

        Args:
            keep_at_least: how many of the newest messages stay, widened to whole groups.
        """
        return self._in_history(self._cut_before(min(keep_at_least, len(self._given))))

    @cached_property
    def cuts(self) -> list[int]:
        """The indexes of the history at which the kept part may begin, rising.

        The first one is the beginning of the tail: all of it is kept.
        """
        return sorted({self._in_history(group.start) for group in self._groups})

    def _in_history(self, index: int) -> int:
        return len(self._before_tail) + bisect_left(self._given, index)

    def interpret(
        self,
        answer: object,
        *,
        keep_at_least: int = 0,
        run: OpenRun | None = None,
        keep_turn: bool = False,
        may_be_empty: bool = False,
    ) -> Compaction:
        """Return what a summarizer's answer makes of the view.

        Args:
            answer: what the summarizer returned.
            keep_at_least: how many of the newest messages stay, even if the answer keeps fewer.
            run: the run in progress; its question stays, answered or not.
            keep_turn: whether the question of the newest turn stays, if tools are called in it
                and no run is in progress: what seems an answer may only announce the next call.
            may_be_empty: whether an empty answer is valid and leaves out all that may go.

        The longest suffix of the history that ends the answer is *kept*, widened to whole
        groups; what the answer holds before it is the summary. A raw message among that brings
        its whole exchange, and a question that has not been answered is always among it. The
        newest message is kept in any case, and so is an exchange that is still open.

        Raises:
            InvalidSummaryError: the answer is not a list of messages, empty, blank, holds
                a message twice or raw messages out of order, or has calls of its own.
        """
        messages = checked_answer(answer)
        if not messages and not may_be_empty:
            raise InvalidSummaryError("the summarizer returned an empty list")
        kept = self._count_kept(messages)
        cut = self._cut_before(max(kept, min(keep_at_least, len(self._given))))
        summary = self._summary(messages[: len(messages) - kept], kept, cut)
        self._keep_questions(summary, cut, self._question_of(run, keep_turn=keep_turn))
        self._keep_awaited(summary, cut, None if run is None else run.id)
        summary = self._without_orphans(summary)
        summarized = self._given[: len(self._given) - kept][-1:]
        summarized_through = max(
            (self.tail[index].position or 0 for index in summarized), default=0
        )
        return attrs.evolve(self._outcome(summary, cut), summarized_through=summarized_through)

    def _count_kept(self, messages: Sequence[ConversationMessage]) -> int:
        limit = min(len(messages), len(self._given))
        kept = 0
        while kept < limit:
            raw = self.tail[self._given[-1 - kept]]
            answer = messages[-1 - kept]
            if raw.id != answer.id and not raw.same_payload(answer):
                break
            kept += 1
        if 0 < kept == len(messages) and is_rewritten(self.tail[self._given[-kept]], messages[0]):
            return kept - 1  # nothing else in the answer can be the summary
        return kept

    def _cut_before(self, kept: int) -> int:
        if kept == len(self._given):
            return 0
        # The newest message may not have been answered, or even read: it is never summarized.
        wanted = self._given[-max(kept, 1)]
        starts = [group.start for group in self._groups]
        return starts[bisect_right(starts, wanted) - 1]

    def _summary(
        self, before: Sequence[ConversationMessage], kept: int, cut: int
    ) -> list[ConversationMessage]:
        """Return the summary that the answer's messages before the kept ones mean."""
        known = KnownMessages(self.history, kept, (*self.head, *self.tail))
        after = {message.id for message in self.tail[cut:]}
        exchanges = self._exchanges(cut)
        summary: list[ConversationMessage] = []
        chosen: set[str] = set()
        for message in before:
            match = known.match(message)
            if match is None:
                summary.append(known.own(message))
            elif match.id not in after:
                members = exchanges.get(match.id, (match,))
                summary += [member for member in members if member.id not in chosen]
                chosen.update(member.id for member in members)
        check_order(summary)
        return summary

    def _replaced(self, cut: int) -> list[ConversationMessage]:
        return [*self._before_tail, *(self.tail[index] for index in self._given if index < cut)]

    def _exchanges(self, cut: int) -> dict[str, tuple[ConversationMessage, ...]]:
        """Map the id of each message before the cut to its whole group."""
        found: dict[str, tuple[ConversationMessage, ...]] = {}
        # A stray result is grouped with the message before it, even a leading system message.
        withheld = {self.tail[index].id for index in self._withheld}
        for messages, groups in (
            (self._before_tail, turns.group(self._before_tail)),
            (self.tail[:cut], [group for group in self._groups if group.stop <= cut]),
        ):
            for group in groups:
                members = tuple(
                    member
                    for member in messages[group.start : group.stop]
                    if member.id not in withheld
                )
                if len(members) > 1:
                    found.update((member.id, members) for member in members)
        return found

    @cached_property
    def _verbatim(self) -> tuple[list[ConversationMessage], int]:
        """The raw messages that are shown verbatim, and how many of them precede the tail."""
        raw = [message for message in self._before_tail if message.position is not None]
        return [*raw, *self.tail], len(raw)

    def _keep_questions(
        self, summary: list[ConversationMessage], cut: int, work: range | None
    ) -> None:
        """Insert open questions, and the one that is worked on, if the cut would drop them."""
        verbatim, before = self._verbatim
        # A question that is partly kept after the cut is one of the two, and needs nothing here.
        for question in turns.unanswered_questions(verbatim)[-_QUESTIONS:]:
            if question.stop <= before + cut:
                self._keep(
                    summary, verbatim[question.start : question.stop][-_QUESTION_MESSAGES:], cut
                )
        if work is not None:
            self._keep(summary, verbatim[work.start : work.stop][:_QUESTION_MESSAGES], cut)

    def _question_of(self, run: OpenRun | None, *, keep_turn: bool) -> range | None:
        """The first user messages of a run, else of the newest turn that calls tools."""
        verbatim, _ = self._verbatim
        if run is not None:
            asked = [
                index
                for index, message in enumerate(verbatim)
                if message.run_id == run.id and turns.asks(message)
            ]
            own = [index for index in asked if (verbatim[index].position or 0) > run.start]
            if asked:
                first = stop = own[0] if own else asked[-1]
                while stop < len(verbatim) and turns.asks(verbatim[stop]):
                    stop += 1
                return range(first, stop)
        return turns.working_turn(verbatim) if keep_turn or run is not None else None

    def _keep_awaited(
        self, summary: list[ConversationMessage], cut: int, run_id: str | None
    ) -> None:
        """Put calls into the summary if their results are kept, or may yet come to another run."""
        verbatim, before = self._verbatim
        old = verbatim[: before + cut]
        called = {
            name: index for index, old_one in enumerate(old) for name in facts_of(old_one).calls
        }
        kept = [facts_of(message) for message in self.tail[cut:]]
        again = {name for facts in kept for name in facts.calls}
        answered = {called.get(name or "") for facts in kept for name in {*facts.results} - again}
        newest_of_run = {message.run_id: index for index, message in enumerate(verbatim)}
        dead = {site.index for site in turns.dead_calls(verbatim)}
        needed: list[turns.Group] = []
        waiting: list[turns.Group] = []
        for group in turns.group(old) if answered - {None} or dead else ():
            members = range(group.start, group.stop)
            run = old[group.start].run_id
            if not answered.isdisjoint(members):
                needed.append(group)
            elif run not in (None, run_id) and newest_of_run[run] in members:
                waiting += [] if dead.isdisjoint(members) else [group]
        for group in (*needed, *waiting[-_AWAITED:]):
            self._keep(summary, old[group.start : group.stop], cut)

    def _without_orphans(self, summary: list[ConversationMessage]) -> list[ConversationMessage]:
        called = {name for message in self.head for name in facts_of(message).calls}
        found: list[ConversationMessage] = []
        for message in summary:
            facts = facts_of(message)
            if not facts.is_orphan(called):
                found.append(message)
                called.update(facts.calls)
        return found

    def _keep(
        self,
        summary: list[ConversationMessage],
        messages: Sequence[ConversationMessage],
        cut: int,
    ) -> None:
        """Insert into the summary, by position, those messages that the cut would drop."""
        shown = {message.id for message in (*summary, *self.tail[cut:])}
        shown.update(self.tail[index].id for index in self._withheld)
        for message in messages:
            if message.id not in shown:
                summary.insert(_place(summary, message), message)

    def _outcome(self, summary: list[ConversationMessage], cut: int) -> Compaction:
        shown = {message.id for message in summary}
        dropped = [
            message.position
            for message in self._replaced(cut)
            if message.position is not None and message.id not in shown
        ]
        gone = {message.id for message in self.demoted}
        lifted = [self.tail[index] for index in sorted(self._withheld) if index < cut]
        return Compaction(
            head=(*(message for message in self.head if message.id not in gone), *lifted),
            summary=tuple(summary),
            cut=cut,
            dropped=Covered(min(dropped), max(dropped), len(dropped)) if dropped else None,
        )


def _is_system(messages: Sequence[ConversationMessage]) -> bool:
    return all(message.role in SYSTEM_ROLES for message in messages)


def _place(summary: Sequence[ConversationMessage], message: ConversationMessage) -> int:
    position = message.position or 0
    for index, other in enumerate(summary):
        if other.position is not None and other.position > position:
            return index
    return len(summary)
