"""How much a chat has to grow before its summarizer is asked again: :class:`Cooldown`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from agent_memory.log import SummaryRecord
from agent_memory.messages import ChatKey
from agent_memory.summarizing.options import PAIR, SummarizingOptions

_log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 32  # limits; a summarizer that keeps failing is still tried sometimes


_ADVICE: Final[Mapping[str, str]] = {
    "not_yet": (
        "the summarizer says not yet (it returned None): lower its own threshold or what it "
        "keeps, or raise the trigger"
    ),
    "nothing_to_gain": (
        "there is nothing to gain: what must be kept (keep_last, the newest exchange, open "
        "questions) or what the summarizer kept is as long as the view; keep less, or raise "
        "the trigger"
    ),
    "more_tokens": (
        "the summary has more tokens than what it would replace: ask for shorter summaries, or "
        "raise the trigger"
    ),
    "refused": (
        "the result names the run in progress as summarized: name an older run, or None with "
        "messages_to_keep"
    ),
    "vetoed": "before_compaction vetoed it",
    "still_over": (
        "the new summary leaves it over the trigger: have the summarizer keep less, lower "
        "keep_last, or raise the trigger"
    ),
}


@attrs.define(eq=False)
class Cooldown:
    """When the summarizer of a chat may be asked again, by the chat's growth.

    Messages are waited for after an attempt that a number of messages caused, tokens after one
    that a number of tokens caused; after a failure whichever comes first.

    Attributes:
        failures: attempts that failed in a row.
        entries: how many there were at the last attempt.
        tokens: how many tokens the view had after it.
        wait: how many entries to wait for.
        token_wait: how many tokens; None for none, however many come.
        by_either: whether either growth will do, whatever the reason.
        warned_at: messages and tokens of the view at the last warning.
    """

    failures: int = 0
    entries: int = 0
    tokens: int = 0
    wait: int = 0
    token_wait: int | None = 0
    by_either: bool = True
    warned_at: tuple[int, int] | None = None

    def first_ready(self, reasons: Iterable[str], entries: int, tokens: int) -> str | None:
        """Return the first of the reasons for which the summarizer may be asked now, or None.

        Args:
            reasons: ``"trigger_at"`` waits for entries, any other one for tokens.
            entries: how many there are, by the count that :meth:`begin` was given: positions of
                the log, or messages of the view.
            tokens: how many tokens the view has.
        """
        # In a chat that was deleted and purged positions start again; a view may shrink.
        entries_came = not 0 <= entries - self.entries < self.wait
        growth = tokens - self.tokens
        tokens_came = self.token_wait is not None and not 0 <= growth < self.token_wait
        for reason in reasons:
            came = entries_came if reason == "trigger_at" else tokens_came
            if came or (self.by_either and (entries_came or tokens_came)):
                return reason
        return None

    def begin(self, entries: int, tokens: int) -> None:
        """Note that the summarizer is asked."""
        self.entries, self.tokens = entries, tokens

    def summarized_view(
        self, size: int, tokens: int, summary: int, options: SummarizingOptions
    ) -> None:
        """Note that a summary was installed: without headroom the chat has to grow first.

        Args:
            size: messages of the view now.
            tokens: tokens of the view now.
            summary: how many of the messages stand for older ones.
            options: give the limits.
        """
        step = options.token_step
        if step is not None and tokens <= 2 * step:
            step = 0
        headroom = options.has_headroom(size, summary)
        self._summarized(tokens, 0 if headroom else options.trigger_messages, step)

    def summarized_run(self, record: SummaryRecord, options: SummarizingOptions) -> None:
        """Note that a run's summary was installed: what is kept may exceed the limit by itself.

        Asked again at once, it would be summarized in every round. A window without a summary
        costs nothing and may slide each time.
        """
        self.begin(record.messages_after, record.tokens_after)
        headroom = options.has_headroom(record.messages_after, len(record.summary))
        least = max(options.token_step or 0, record.tokens_after // 2)
        self._summarized(
            record.tokens_after,
            0 if headroom else options.trigger_messages,
            least if record.summary else 0,
        )

    def _summarized(self, tokens: int, wait: int, token_wait: int | None) -> None:
        self.failures, self.tokens = 0, tokens
        self._wait(wait, token_wait, by_either=False)

    def skipped(self, reason: str, options: SummarizingOptions) -> None:
        """Note that there was no summary although nothing failed.

        Args:
            reason: as in :class:`~agent_memory.events.CompactionSkipped`.
            options: give the limits.
        """
        if reason == "more_tokens":
            # It was paid for, like a failure: asked again at once it would be each time.
            self.failed(options)
            return
        self.failures = 0
        if reason == "superseded":
            self._wait(0, 0, by_either=True)
        elif reason == "not_yet":
            self._wait(PAIR, None, by_either=True)
        else:
            self._wait(options.trigger_messages, options.token_step, by_either=False)

    def failed(self, options: SummarizingOptions) -> None:
        """Note that an attempt failed: each time in a row the wait doubles."""
        doubled, step = min(self.failures, 30), options.token_step
        most = _LONGEST_WAIT * (options.trigger_tokens or 0)
        self._wait(
            min(PAIR << doubled, _LONGEST_WAIT * options.trigger_messages),
            None if step is None else min(step << doubled, most),
            by_either=True,
        )
        self.failures += 1

    def abandoned(self, options: SummarizingOptions) -> None:
        """Note that an attempt ended with its event loop; the first time that costs no wait."""
        if self.failures:
            self.failed(options)
        else:
            self.failures = 1
            self._wait(0, 0, by_either=True)

    def warn(self, key: ChatKey, reason: str, messages: int, tokens: int) -> None:
        """Warn that the chat stays over its trigger: once, and again when the view has doubled.

        Args:
            key: which chat.
            reason: why, as in :class:`~agent_memory.events.CompactionSkipped`, or
                ``"still_over"``.
            messages: how many the view has.
            tokens: how many it has, 0 where they are not counted.
        """
        advice = _ADVICE.get(reason)
        if advice is None:
            return
        if self.warned_at is not None:
            doubled = messages >= 2 * self.warned_at[0] or 0 < 2 * self.warned_at[1] <= tokens
            if not doubled:
                return
        self.warned_at = messages, tokens
        counted = f" and about {tokens} tokens" if tokens else ""
        _log.warning(
            "%s is due for a summary and gets none; its view has %d messages%s: %s",
            key,
            messages,
            counted,
            advice,
        )

    def _wait(self, entries: int, tokens: int | None, *, by_either: bool) -> None:
        self.wait, self.token_wait, self.by_either = entries, tokens, by_either
