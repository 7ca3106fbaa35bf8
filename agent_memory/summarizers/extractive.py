"""A summary made of the conversation's own sentences, without a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from agent_memory.messages import ConversationMessage, ParticipantRole, Usage
from agent_memory.providers import parts
from agent_memory.providers.part import Part
from agent_memory.providers.text import cut_middle
from agent_memory.summarizers.base import (
    SummaryResult,
    new_summary_id,
    summaries_in,
    summary_body,
    summary_message,
    summary_role,
)
from agent_memory.summarizers.bounds import KeepBounds
from agent_memory.summarizers.coverage import coverage_of
from agent_memory.summarizers.cutting import split_at, split_pairs, summarized_run
from agent_memory.summarizers.sentences import Sentence, choose, clip, split_sentences
from agent_memory.turns import safe_start
from agent_memory.validation import checked_count

_NOTE: Final = "sentences picked from it, the rest left out"
_NOTHING: Final = "(Nothing in it was text.)"
_LINE: Final = re.compile(r"^- ([^:\n]{1,20}): (.+)$")
_EARLIER: Final = "earlier"
_MAX_SENTENCE: Final = 260
_MAX_CALL: Final = 160
_MAX_RESULT: Final = 200
_LONGEST_READ: Final = 20_000
"""Of a longer text only its beginning and end are looked at, so that a pasted book costs
no more than a long letter."""
_JSON_MARKS: Final = re.compile(r"[{}\[\]\"\\]+")

_FIRST_REQUEST: Final = 1.4
_TOLD_BEFORE: Final = 1.25
_USER: Final = 1.1
_QUESTION: Final = 0.6
_CALL: Final = 0.35
_RESULT: Final = 0.55
_ERROR: Final = 0.8


class ExtractiveSummarizer:
    """Picks the most informative sentences, and leaves out the rest. No model.

    **It is no substitute for a model.** It understands nothing: it neither joins facts nor
    notices that one replaces another, and what it leaves out is gone from the view (never from
    the store). It is for tests and demos, for places where no model may be used, and as a
    fallback while the model is down. On the long chats of LoCoMo
    (https://arxiv.org/abs/2402.17753) its summaries hold the evidence of 5.0 % of the questions;
    a plain window of the same size holds that of 6.2 %.

    Numbers, dates, ids, names and words of decision are favoured, repetitions avoided; each
    sentence keeps its speaker and its place in the order. A summary that it made before
    competes with the new text under the same limits, so that it never grows. The time it takes
    is linear in the length of the text; it needs no language to be named.

    Use it as the summarizer of a wrapper or manager; like any plain function it then runs in
    a worker thread.

    Args:
        max_sentences: how many sentences a summary has at most.
        max_chars: how long its body is at most, in characters; at least 200.
        keep_count: how many of the newest messages :meth:`summarize` keeps at least.
        role: the role of the summary message.

    Raises:
        InvalidRequestError: a figure is too small.
    """

    def __init__(
        self,
        *,
        max_sentences: int = 24,
        max_chars: int = 3_000,
        keep_count: int = 4,
        role: ParticipantRole | str = ParticipantRole.USER,
    ) -> None:
        for name, value, least in (
            ("max_sentences", max_sentences, 1),
            ("max_chars", max_chars, 200),
            ("keep_count", keep_count, 1),
        ):
            checked_count(value, name, least)
        self.keep_count = keep_count
        self._max_sentences = max_sentences
        self._max_chars = max_chars
        self._role = summary_role(role)

    def __call__(
        self, history: list[ConversationMessage], keep_last: int
    ) -> list[ConversationMessage]:
        """Return the summary and about the newest `keep_last` pairs of messages.

        Args:
            history: the messages, oldest first. Leading system messages stay in front.
            keep_last: pairs to keep, at least 1, widened to where the history may be cut.
        """
        head, old, recent = split_pairs(history, keep_last)
        known = summaries_in(history)
        if all(message.id in known for message in old):
            return list(history)
        return [*head, self._summary(old, history[-1]), *recent]

    def summarize(
        self,
        messages: list[ConversationMessage],
        context_tokens: int,
        *,
        bounds: KeepBounds | None = None,
    ) -> SummaryResult | None:
        """Return a summary of all but the newest `keep_count` messages.

        Args:
            messages: the history, oldest first.
            context_tokens: ignored; the caller has decided that it is time.
            bounds: from a wrapper or manager, which keeps the chat's instructions itself;
                `keep_count` holds all the same.

        Returns:
            The summary and what is kept; None if there is nothing new to summarize.
        """
        cut = safe_start(messages, max(len(messages) - self.keep_count, 0))
        old, recent = split_at(messages, cut, bounds)
        known = summaries_in(messages)
        if all(message.id in known for message in old):
            return None
        summary = self._summary(old, recent[-1] if recent else old[-1])
        return SummaryResult(
            summary,
            recent,
            last_summarized_run_id=summarized_run(messages, cut),
            summary_id=summary.id,
            usage=Usage(),
        )

    def _summary(
        self, old: Sequence[ConversationMessage], like: ConversationMessage
    ) -> ConversationMessage:
        return summary_message(
            self.body(old),
            like=like,
            summary_id=new_summary_id(),
            role=self._role,
            note=_NOTE,
            covers=coverage_of(old, summaries_in([*old, like])),
        )

    def body(self, messages: Sequence[ConversationMessage]) -> str:
        """Return the picked sentences, a line each: ``- speaker: sentence``."""
        sentences = list(_sentences(messages))
        chosen = choose(sentences, self._max_sentences, self._max_chars)
        return "\n".join(map(str, chosen)) or _NOTHING


def _sentences(messages: Sequence[ConversationMessage]) -> Iterator[Sentence]:
    first_request = True
    known = summaries_in(messages)
    for message in messages:
        if message.id in known:
            yield from _told_before(summary_body(message))
            first_request = False
            continue
        is_request = first_request and message.role is ParticipantRole.USER
        for part in parts(message):
            for sentence in _of_part(part, message.role):
                yield _weighed(sentence, _FIRST_REQUEST) if is_request else sentence
        first_request = first_request and not is_request


def _told_before(body: str) -> Iterator[Sentence]:
    """Read the sentences of an earlier summary, by any summarizer."""
    for line in body.splitlines():
        known = _LINE.match(line)
        if known:
            yield Sentence(known[1], known[2], _TOLD_BEFORE)
        elif line != _NOTHING:
            for text in split_sentences(line, _MAX_SENTENCE):
                yield Sentence(_EARLIER, text, _TOLD_BEFORE)


def _of_part(part: Part, role: ParticipantRole) -> Iterator[Sentence]:
    if part.kind == "text":
        weight = _USER if role is ParticipantRole.USER else 1.0
        for text in split_sentences(_ends(part.text), _MAX_SENTENCE):
            asked = text.endswith(("?", "？", "؟"))  # noqa: RUF001  full-width on purpose
            yield Sentence(role.value, text, weight * (_QUESTION if asked else 1.0))
    elif part.kind == "call":
        arguments = clip(_without_marks(part.arguments), _MAX_CALL)
        yield Sentence(role.value, f"called {part.name or 'a tool'}: {arguments}", _CALL)
    elif part.kind == "result":
        text = clip(_without_marks(part.text), _MAX_RESULT)
        if text:
            weight = _ERROR if part.is_error else _RESULT
            yield Sentence("tool error" if part.is_error else "tool", text, weight)


def _ends(text: str) -> str:
    return cut_middle(text, _LONGEST_READ, "\n")


def _without_marks(text: str) -> str:
    return _JSON_MARKS.sub("", _ends(text))


def _weighed(sentence: Sentence, factor: float) -> Sentence:
    return Sentence(sentence.speaker, sentence.text, sentence.weight * factor)
