"""When a chat is summarized, and what bounds it: the options of ``SummarizingChatStorage``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.storage.requests import checked_count

_PAIR: Final = 2
_LONGEST_WAIT: Final = 32  # limits; a summarizer that keeps failing is still tried sometimes


def _at_least(least: int) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None or attribute.default is not None:
            checked_count(value, attribute.name, least)

    return check


def _seconds(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidRequestError(
            f"{attribute.name} must be a number of seconds above 0, or None for no limit, "
            f"not {value!r}"
        )


@attrs.frozen(kw_only=True)
class Trigger:
    """When a view is compacted. Both measures leave out what is never summarized.

    Args:
        trigger_at: pairs of messages; a view of strictly more than twice as many messages is
            compacted (at least 2).
        keep_last: pairs of messages that the summarizer is asked to keep (at least 1, below
            `trigger_at`).
        trigger_tokens: a view of strictly more tokens is compacted too, whichever is exceeded
            first; None for no such limit.

    Raises:
        InvalidRequestError: a figure is out of its range.
    """

    trigger_at: int = attrs.field(default=20, validator=_at_least(2))
    keep_last: int = attrs.field(default=2, validator=_at_least(1))
    trigger_tokens: int | None = attrs.field(default=None, validator=_at_least(1))

    def __attrs_post_init__(self) -> None:
        if self.keep_last >= self.trigger_at:
            raise InvalidRequestError(
                f"keep_last ({self.keep_last}) must be below trigger_at ({self.trigger_at}): "
                "keeping as much as triggers leaves nothing to summarize"
            )

    @property
    def messages(self) -> int:
        """How many messages a view may have."""
        return 2 * self.trigger_at

    def exceeded(self, size: int, tokens: int) -> list[str]:
        """Return the names of the limits that so many messages and tokens exceed."""
        found = ["trigger_at"] if size > self.messages else []
        if self.trigger_tokens is not None and tokens > self.trigger_tokens:
            found.append("trigger_tokens")
        return found

    def waits_for(self, size: int, tokens: int) -> bool:
        """Whether a compaction waits for the exchange at the end of the view to close.

        Where results are saved together with the next call one is always open; the limits are
        exceeded by no more than a quarter then.

        Args:
            size: messages before that exchange.
            tokens: tokens before it.
        """
        most = quarter(self.trigger_tokens)
        over = most is not None and tokens > (self.trigger_tokens or 0) + most
        return size <= self.messages + max(_PAIR, self.messages // 4) and not over

    def has_room(self, messages: int, block: int) -> bool:
        """Whether a summary has left room, by the number of messages.

        Args:
            messages: how many the view has now.
            block: how many of them stand for older ones.
        """
        return messages <= self.trigger_at or (messages < self.messages and block <= 1)


@attrs.define(eq=False)
class Pace:
    """How much a chat has to grow before its summarizer is asked again.

    Messages are waited for after an attempt that a number of messages caused, tokens after one
    that a number of tokens caused; after a failure whichever comes first.

    Attributes:
        failures: attempts that failed in a row.
        entries: how many there were at the last attempt.
        tokens: how many tokens the view had after it.
        wait: how many entries to wait for.
        token_wait: how many tokens; None for none, however many come.
        by_either: whether either growth will do, whatever the reason.
    """

    failures: int = 0
    entries: int = 0
    tokens: int = 0
    wait: int = 0
    token_wait: int | None = 0
    by_either: bool = True

    def chosen(self, reasons: Iterable[str], entries: int, tokens: int) -> str | None:
        """Return the first of the reasons for which the summarizer may be asked now, or None.

        Args:
            reasons: ``"trigger_at"`` waits for entries, any other one for tokens.
            entries: how many there are, by the count that :meth:`begin` was told: positions of
                the log, or messages of the view.
            tokens: how many tokens the view has.
        """
        # In a chat that was deleted and purged positions start again; a view may shrink.
        entries_came = not 0 <= entries - self.entries < self.wait
        grown = tokens - self.tokens
        tokens_came = self.token_wait is not None and not 0 <= grown < self.token_wait
        for reason in reasons:
            came = entries_came if reason == "trigger_at" else tokens_came
            if came or (self.by_either and (entries_came or tokens_came)):
                return reason
        return None

    def begin(self, entries: int, tokens: int) -> None:
        """Note that the summarizer is asked."""
        self.entries, self.tokens = entries, tokens

    def summarized(self, tokens: int, wait: int, token_wait: int | None) -> None:
        """Note that a summary was installed, and what it left."""
        self.failures, self.tokens = 0, tokens
        self._wait(wait, token_wait, by_either=False)

    def skipped(self, reason: str, trigger: Trigger, limit: int | None) -> None:
        """Note that there was no summary although nothing failed.

        Args:
            reason: as :class:`~agent_memory.events.CompactionSkipped` says it.
            trigger: gives the number of messages to wait for.
            limit: the number of tokens that triggers, None without one.
        """
        self.failures = 0
        if reason == "superseded":
            self._wait(0, 0, by_either=True)
        elif reason == "not_yet":
            self._wait(_PAIR, None, by_either=True)
        else:
            self._wait(trigger.messages, quarter(limit), by_either=False)

    def failed(self, trigger: Trigger, limit: int | None) -> None:
        """Note that an attempt failed: each time in a row the wait doubles."""
        doubled = min(self.failures, 30)
        tokens = quarter(limit)
        self._wait(
            min(_PAIR << doubled, _LONGEST_WAIT * trigger.messages),
            None if tokens is None else min(tokens << doubled, _LONGEST_WAIT * (limit or 0)),
            by_either=True,
        )
        self.failures += 1

    def abandoned(self, trigger: Trigger, limit: int | None) -> None:
        """Note that an attempt ended with its event loop; the first time that costs no wait."""
        if self.failures:
            self.failed(trigger, limit)
        else:
            self.failures = 1
            self._wait(0, 0, by_either=True)

    def _wait(self, entries: int, tokens: int | None, *, by_either: bool) -> None:
        self.wait, self.token_wait, self.by_either = entries, tokens, by_either


def quarter(limit: int | None) -> int | None:
    """How many tokens a view has to grow by between two attempts without headroom."""
    return None if limit is None else max(1, limit // 4)


@attrs.frozen(kw_only=True)
class Limits:
    """What bounds the work and the memory.

    Args:
        max_buffers: chats whose view is held in memory; the least recently used gives way. A
            view costs its messages and under 1 KiB.
        summarizer_timeout: seconds that a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in the middle; None for no limit.
        max_head_tokens: pinned messages beyond it become ordinary, the oldest first; None for
            no limit.
        max_concurrent_summaries: summarizers that work at the same moment, over all chats.
        hard_limit: pairs of messages; with work in the background, a save that finds a view of
            strictly more than twice as many messages, or of as many times more tokens as that
            exceeds the trigger, waits all the same. None for four times the trigger.
        drain_timeout: seconds that closing waits for compactions under way.

    Raises:
        InvalidRequestError: a figure is out of its range.
    """

    max_buffers: int = attrs.field(default=1_000, validator=_at_least(1))
    summarizer_timeout: float | None = attrs.field(default=60.0, validator=_seconds)
    max_summary_tokens: int | None = attrs.field(default=8_000, validator=_at_least(16))
    max_head_tokens: int | None = attrs.field(default=None, validator=_at_least(1))
    max_concurrent_summaries: int = attrs.field(default=16, validator=_at_least(1))
    hard_limit: int | None = attrs.field(default=None, validator=_at_least(1))
    drain_timeout: float | None = attrs.field(default=30.0, validator=_seconds)

    def is_far_over(self, trigger: Trigger, size: int, tokens: int) -> bool:
        """Whether a view has grown so far that a save waits for its compaction."""
        pairs = 4 * trigger.trigger_at if self.hard_limit is None else self.hard_limit
        if size > 2 * pairs:
            return True
        most = (trigger.trigger_tokens or 0) * pairs / trigger.trigger_at
        return trigger.trigger_tokens is not None and tokens > most
