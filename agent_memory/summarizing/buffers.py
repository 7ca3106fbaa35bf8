"""The buffers of many chats: which are held, and what is known of each.

Of each also how much it has to grow before its summarizer is asked again: :class:`Cooldown`.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final

import attrs

from agent_memory.log import Entry, LogSlice, SummaryRecord, retraction_of
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.event_loops import SharedSemaphore, SharedTask
from agent_memory.summarizing.options import PAIR, SummarizingOptions
from agent_memory.summarizing.summarizer_call import SummarizerTask
from agent_memory.summarizing.view import ChatView

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


@attrs.define(eq=False)
class Attempts:
    """What is known of the attempts to summarize one chat, in whichever loop or run.

    Args:
        task: the attempt under way; its result is the error of a failed one.
        calls: of summarizers; one may go on although its time is over.
        cooldown: how much has to come before the next attempt.
        record_id: the record that an attempt of ours installed last.
    """

    task: SharedTask[Exception] | None = None
    calls: tuple[SummarizerTask, ...] = ()
    cooldown: Cooldown = attrs.field(factory=Cooldown)
    record_id: str | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a summarizer works on the chat, or is about to."""
        under_way = self.task is not None and self.task.is_live
        # A plain function that timed out still runs in its thread. If it did not count as busy,
        # each attempt would add a thread.
        return under_way or not all(call.done() for call in self.calls)

    def begin_call(self, call: SummarizerTask) -> None:
        """Note a call of a summarizer, until it has ended: it keeps its loop alive."""
        self.calls = (*(other for other in self.calls if not other.done()), call)
        call.when_done(self._forget_calls)

    def _forget_calls(self) -> None:
        self.calls = tuple(call for call in self.calls if not call.done())

    def end(self, task: SharedTask[Exception], error: Exception | None = None) -> None:
        """End an attempt, and wake its waiters."""
        if self.task is task:
            self.task = None
        task.finish(error)

    def start_over(self) -> None:
        """Forget the cooldown: the log is a new one, and its growth starts at zero."""
        self.cooldown = Cooldown()


@attrs.define(eq=False)
class Peek:
    """A read of the end of a chat that has no buffer.

    Args:
        most: how many of the newest entries are asked for.
        log: those entries; None until they are read.
        outdated: whether we changed the chat since the read began.
    """

    most: int
    log: LogSlice | None = None
    outdated: bool = False

    @property
    def whole(self) -> LogSlice | None:
        """The log, if that is all of it."""
        return None if self.log is None or len(self.log.entries) >= self.most else self.log

    def since(self, position: int) -> LogSlice | None:
        """The log from a position on, if it was read."""
        if self.log is None or not self.log.entries:
            return None
        entries = [entry for entry in self.log.entries if (entry.position or 0) >= position]
        found = bool(entries) and entries[0].position == position
        return LogSlice(entries, self.log.floor) if found else None


@attrs.define(eq=False)
class Buffer:
    """What is held of one activated chat. Changed only under the lock of :class:`Buffers`.

    Args:
        key: which chat.
        view: what the model sees; None until it is loaded, and after a reset.
        acknowledged_to: the highest position that a save of ours returned; a view that does not
            reach it is read up to it before it is shown.
        stale: whether a save left by an exception, so that the log must be read.
        generation: rises with each reset, so that a read that began before is not installed.
        out_of_order: entries that saves of ours stored beyond a gap, which other saves of ours,
            still on their way back, usually fill.
        loading: the read under way that loads the view.
        attempted: whether a first compaction has ended, or was not needed.
        attempts: to summarize the chat.
        shares_attempts: whether other buffers of the chat share them.
        unsaved: the record of the view's summary, while it could not be written.
    """

    key: ChatKey
    view: ChatView | None = None
    acknowledged_to: int = 0
    stale: bool = False
    generation: int = 0
    out_of_order: dict[int, Entry] = attrs.field(factory=dict[int, Entry])
    loading: SharedTask[None] | None = None
    attempted: bool = False
    attempts: Attempts = attrs.field(factory=Attempts)
    shares_attempts: bool = False
    unsaved: SummaryRecord | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that needs this very buffer."""
        loads = self.loading is not None and self.loading.is_live
        return not loads and not self.attempts.is_busy

    @property
    def is_current(self) -> bool:
        """Whether the view shows everything that this process knows to be stored."""
        view = self.view  # looked at without the lock: another thread may drop it meanwhile
        return view is not None and not self.stale and view.last >= self.acknowledged_to

    def reset(self) -> None:
        """Drop the view: it was made from a log that is no longer the chat's."""
        self.view = None
        # In a chat that was deleted and purged positions start again at 1.
        self.acknowledged_to = 0
        self.stale = False
        self.unsaved = None
        self.out_of_order.clear()
        self.generation += 1
        # The runs of a thread share one cooldown: it outlasts the reset of one run's view.
        if not self.shares_attempts:
            self.attempts.start_over()

    def retract(self) -> None:
        """Drop the view, which shows what was retracted, directly or in a summary."""
        self.reset()
        self.attempted = False  # without its summary it may be long: the next fetch waits for one

    def mark_stale(self) -> None:
        """Have the log read before the view is shown again: a save's answer was lost."""
        self.stale = True

    def saved(self, stored: LogSlice) -> None:
        """Take over what a save of ours stored."""
        # Another worker trimmed or deleted the chat before this save.
        if self.view is not None and self.view.floor != stored.floor:
            self.reset()
        placed = {entry.position or 0: entry for entry in stored.entries}
        if self.view is not None and self._is_retracting(placed, self.view.last):
            self.retract()
        self.acknowledged_to = max([self.acknowledged_to, *placed])
        # A stale view is read up to date before it is shown, and gets these entries with it.
        if self.view is not None and not self.stale:
            self.out_of_order.update(placed)
            self.take_out_of_order(self.view)

    @staticmethod
    def _is_retracting(placed: dict[int, Entry], last: int) -> bool:
        return any(
            position > last and retraction_of(entry) is not None
            for position, entry in placed.items()
        )

    def take_out_of_order(self, view: ChatView) -> None:
        """Add to the view what was stored beyond a gap, as far as no gap is left."""
        while (following := self.out_of_order.pop(view.last + 1, None)) is not None:
            view.append((following,))
        if self.out_of_order:
            known = [position for position in self.out_of_order if position <= view.last]
            for position in known:
                del self.out_of_order[position]


class Buffers:
    """The one table of what chats, loops and runs share: buffers, attempts, and their bound.

    Args:
        most: how many are held; more only while more are busy.
        on_evicted: called with each evicted buffer, under the lock.
        summaries_at_once: how many chats may be summarized at the same moment.
    """

    def __init__(
        self,
        most: int,
        on_evicted: Callable[[Buffer], None] = lambda _buffer: None,
        *,
        summaries_at_once: int = 16,
    ) -> None:
        self._most = most
        self._on_evicted = on_evicted
        self.summaries = SharedSemaphore(summaries_at_once)
        self._by_key: OrderedDict[ChatKey, Buffer] = OrderedDict()
        self._peeks: dict[ChatKey, list[Peek]] = {}
        self.lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: ChatKey) -> Buffer | None:
        """Return the chat's buffer, if it has one."""
        with self.lock:
            buffer = self._by_key.get(key)
            if buffer is not None:
                self._by_key.move_to_end(key)
            return buffer

    def get_or_add(self, key: ChatKey) -> tuple[Buffer, bool]:
        """Return the chat's buffer and whether it is new; a new one may evict idle ones."""
        with self.lock:
            known = self.get(key)
            if known is not None:
                return known, False
            buffer = self._by_key[key] = Buffer(key)
            self.shrink()
            return buffer, True

    def change(self, key: ChatKey, change: Callable[[Buffer], None]) -> None:
        """Change the chat's buffer, if it has one; reads of the chat are outdated by it."""
        with self.lock:
            for peek in self._peeks.get(key, ()):
                peek.outdated = True  # it may have read the log before or after this change
            buffer = self.get(key)
            if buffer is not None:
                change(buffer)

    @contextmanager
    def peek(self, key: ChatKey, most: int) -> Generator[Peek]:
        """Begin a read of a chat, which becomes outdated when we change the chat during it."""
        peek = Peek(most)
        with self.lock:
            self._peeks.setdefault(key, []).append(peek)
        try:
            yield peek
        finally:
            with self.lock:
                self._peeks[key].remove(peek)
                if not self._peeks[key]:
                    del self._peeks[key]

    def shrink(self) -> None:
        """Evict the least recently used idle buffers that are too many."""
        with self.lock:
            excess = len(self._by_key) - self._most
            if excess <= 0:
                return
            # Never the newest: it was added for a caller that has not begun to use it.
            newest = next(reversed(self._by_key.values()))
            idle = (b for b in self._by_key.values() if b.is_idle and b is not newest)
            for buffer in list(islice(idle, excess)):
                del self._by_key[buffer.key]
                self._on_evicted(buffer)

    def discard(self, buffer: Buffer) -> None:
        """Forget a buffer that holds nothing, unless something under way needs it."""
        with self.lock:
            if self._by_key.get(buffer.key) is buffer and buffer.is_idle:
                del self._by_key[buffer.key]

    def is_held(self, buffer: Buffer) -> bool:
        """Whether this is still the chat's buffer."""
        return self._by_key.get(buffer.key) is buffer

    def clear(self) -> None:
        """Forget all."""
        with self.lock:
            self._by_key.clear()

    @property
    def tasks(self) -> list[SharedTask[Exception]]:
        """The compactions under way."""
        with self.lock:
            attempts = [buffer.attempts.task for buffer in self._by_key.values()]
            return [task for task in attempts if task is not None]
