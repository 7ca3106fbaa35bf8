"""The pure state of one chat's buffer: what the model sees, and how it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from agent_memory import turns
from agent_memory.log import (
    Covered,
    Entry,
    LogSlice,
    SummaryRecord,
    is_outdated,
    retracted_ids,
    retraction_of,
)
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage
from agent_memory.summarizing.compaction import Compaction, Snapshot
from agent_memory.turns import facts_of, must_stay

_MOST_OVER: Final = 2  # estimates err high, by less than this factor
_Count: TypeAlias = Callable[[ConversationMessage], int]
_Present: TypeAlias = Callable[[list[ConversationMessage]], list[ConversationMessage]]


class ChatView:
    """The view of one chat: head + summary + tail; see :mod:`agent_memory.summarizing.compaction`.

    Between compactions it only grows at its end. It does no I/O and takes no lock. Once
    something is covered, results without their call in the view are held back: they stay in the
    tail, for the next summarizer, and are not shown.

    Attributes:
        floor: the chat's floor that this view belongs to.
        last: the newest position known, of a message or a note; at least the floor.
        last_id: the id of the entry there, None at the floor.
        covered_through: head and summary stand for everything up to this position.
        covered_through_id: the id of the entry there, None if nothing is covered.
        covered: what the summary stands for, None without a compaction.
        record_id: the id of the summary record it shows, None without one.
        summarized_through: the newest position that the summary's text may mention.
        supersedes: the id of a record that does not fit any more, and that the next one replaces.
        needs_reload: whether a message was retracted, so that the view must be loaded again.
        head: what is shown first and never summarized.
        summary: the live summary.
        has_pins: whether the tail holds a message that no summarizer may be given.
        tokens: of summary and tail, leading system messages excluded; 0 without `count`. What a
            provider reported is believed for what it covered; the rest is estimated. What is
            reported after a splice is about an earlier view, until this one has been shown.

    Args:
        floor: the chat's floor.
        count: counts the tokens of a message, where tokens matter.
        present: changes what is shown, or None. For a list and its continuation it gives a list
            and its continuation.
    """

    __slots__ = (
        "_called",
        "_count",
        "_estimate",
        "_fixed",
        "_held_back",
        "_leading",
        "_present",
        "_shown",
        "_tail",
        "_was_shown",
        "_windows",
        "covered",
        "covered_through",
        "covered_through_id",
        "floor",
        "has_pins",
        "head",
        "last",
        "last_id",
        "needs_reload",
        "record_id",
        "summarized_through",
        "summary",
        "supersedes",
        "tokens",
    )

    def __init__(
        self, floor: int = 0, *, count: _Count | None = None, present: _Present | None = None
    ) -> None:
        self._count = count
        self._present = present
        self.tokens = 0
        self._estimate = 0
        self._fixed: int | None = None
        self._was_shown = True
        self.floor = floor
        self.last = floor
        self.last_id: str | None = None
        self.covered_through = floor
        self.covered_through_id: str | None = None
        self.covered: Covered | None = None
        self.record_id: str | None = None
        self.summarized_through = 0
        self.supersedes: str | None = None
        self.needs_reload = False
        self.has_pins = False
        self.head: tuple[ConversationMessage, ...] = ()
        self.summary: tuple[ConversationMessage, ...] = ()
        self._tail: list[ConversationMessage] = []
        self._shown: list[ConversationMessage] = []
        self._called: set[str] = set()
        self._held_back: dict[str, ConversationMessage] = {}
        self._leading = 0
        self._windows: dict[int, list[ConversationMessage]] = {}

    @classmethod
    def of(
        cls, log: LogSlice, *, count: _Count | None = None, present: _Present | None = None
    ) -> ChatView:
        """Make the view of a whole log that nothing has been summarized of."""
        view = cls(log.floor, count=count, present=present)
        view._take(log.entries)
        return view

    @classmethod
    def restored(
        cls,
        record: SummaryRecord,
        log: LogSlice,
        *,
        count: _Count | None = None,
        present: _Present | None = None,
    ) -> ChatView | None:
        """Make the view that a record left, or None when it does not fit the log.

        Args:
            record: the newest record of the chat.
            log: the entries from the record's position on, that one included.
        """
        entries = log.entries
        if not entries or record.floor != log.floor:
            return None
        if entries[0].position != record.position or entries[0].id != record.message_id:
            return None
        if is_outdated(record, entries[1:]):
            return None
        view = cls(log.floor, count=count, present=present)
        view.head, view.summary = record.head, record.summary
        view.covered, view.record_id = record.covered, record.id
        view.summarized_through = record.summarized_through
        view.last = view.covered_through = record.position
        view.last_id = view.covered_through_id = record.message_id
        view._rebuild()
        # What was reported before covered more than this view shows: estimates serve.
        view._take(entries[1:], believe=False)
        return view

    @property
    def tail(self) -> Sequence[ConversationMessage]:
        """The raw messages after `covered_through`."""
        return self._tail

    @property
    def held_back(self) -> Sequence[ConversationMessage]:
        """The messages of the tail that are not shown: results without their call in the view."""
        return [*self._held_back.values()]

    @property
    def size(self) -> int:
        """How many messages the trigger counts at most, leading system messages left out.

        Pinned exchanges are still counted here; :meth:`snapshot` is exact.
        """
        return len(self.summary) + len(self._tail) - self._leading

    def append(self, entries: Iterable[Entry]) -> bool:
        """Add entries that were stored, in order of position; known ones are passed over.

        Args:
            entries: messages and notes.

        Returns:
            Whether the view reaches up to them. False if positions before them are missing,
            or one of them is a retraction, after which the view must be read again; then
            nothing from that place on is added.
        """
        for entry in entries:
            position = entry.position or 0
            if position <= self.last:
                continue
            if position != self.last + 1:
                return False
            if retraction_of(entry) is not None:
                self.needs_reload = True
                return False
            self.last, self.last_id = position, entry.id
            if isinstance(entry, ConversationMessage):
                self._add(entry, believe=self._was_shown)
        return True

    def _take(self, entries: Sequence[Entry], *, believe: bool = True) -> None:
        """Add all that follows what a new view shows, without what of it was retracted.

        Args:
            entries: messages and notes, up to the end of the log.
            believe: whether their reported usage covers what this view shows.
        """
        gone = retracted_ids(entries)
        for entry in entries:
            self.last, self.last_id = entry.position or 0, entry.id
            if isinstance(entry, ConversationMessage) and entry.id not in gone:
                self._add(entry, believe=believe)

    def _add(self, message: ConversationMessage, *, believe: bool = True) -> None:
        if self._leading == len(self._tail) and self._is_fresh and message.role in SYSTEM_ROLES:
            self._leading += 1
        elif self._count is not None:
            self._measure(message, self._count(message), believe=believe)
        self._tail.append(message)
        self.has_pins = self.has_pins or must_stay(message)
        if self._is_shown(message):
            self._shown.append(message)
            self._windows = {}

    def _is_shown(self, message: ConversationMessage) -> bool:
        if self._is_fresh:
            return True
        facts = facts_of(message)
        if facts.is_orphan(self._called):
            self._held_back[message.id] = message
            return False
        self._called.update(facts.calls)
        return True

    def _measure(self, message: ConversationMessage, estimate: int, *, believe: bool) -> None:
        """Count a message; a report covers everything up to it, and a fixed part.

        The fixed part (system prompt, tool definitions) is what the smallest report exceeded
        the estimate by. It is left out, so that it alone never triggers. A report far below the
        estimate covered something else, an earlier and shorter view.
        """
        self._estimate += estimate
        self.tokens += estimate
        reported = 0 if message.usage is None else message.usage.total_tokens
        if believe and reported * _MOST_OVER > self._estimate:
            fixed = max(0, reported - self._estimate)
            self._fixed = fixed if self._fixed is None else min(self._fixed, fixed)
            self.tokens = reported - self._fixed

    @property
    def _is_fresh(self) -> bool:
        return self.covered_through == self.floor

    def snapshot(
        self, *, max_head_tokens: int | None = None, count: _Count | None = None
    ) -> Snapshot:
        """Return what a summarizer may be given now.

        Args:
            max_head_tokens: pins beyond it become ordinary, the oldest first.
            count: counts the tokens of a message, for that limit.
        """
        snapshot = Snapshot(self.head, self.summary, tuple(self._tail), self._is_fresh)
        if max_head_tokens is not None and count is not None:
            snapshot.max_head_tokens, snapshot.count = max_head_tokens, count
        return snapshot

    @property
    def is_open(self) -> bool:
        """Whether the view ends in a tool exchange that still waits for results."""
        return turns.is_open(self._tail)

    @property
    def closed(self) -> tuple[int, int]:
        """The size and the tokens of the view without an exchange at its end that waits."""
        length = turns.open_length(self._tail)
        waiting = self._tail[len(self._tail) - length :] if self._count is not None else ()
        tokens = sum(map(self._count, waiting)) if self._count is not None else 0
        return self.size - length, self.tokens - tokens

    def splice(self, snapshot: Snapshot, compaction: Compaction, record_id: str | None) -> None:
        """Replace the prefix that `compaction` was made from; what came since stays.

        Args:
            snapshot: taken of this view after its last splice.
            compaction: what the snapshot's interpretation gave.
            record_id: the id of the record that was made of it.
        """
        cut = compaction.cut
        self.covered = self.covered_by(compaction)
        self.summarized_through = max(self.summarized_through, compaction.summarized_through)
        if cut:
            self.covered_through = snapshot.tail[cut - 1].position or 0
            self.covered_through_id = snapshot.tail[cut - 1].id
        self.head = compaction.head
        self.summary = compaction.summary
        self.record_id = record_id
        del self._tail[:cut]
        self._was_shown = False
        self._rebuild()

    def covered_by(self, compaction: Compaction) -> Covered | None:
        """Return what the summary would stand for after this compaction."""
        before, dropped = self.covered, compaction.dropped
        return dropped or before if before is None or dropped is None else before.plus(dropped)

    def _rebuild(self) -> None:
        self._leading = turns.leading_system(self._tail) if self._is_fresh else 0
        self.has_pins = any(map(must_stay, self._tail))
        self._held_back.clear()
        self._called = {name for m in (*self.head, *self.summary) for name in facts_of(m).calls}
        self._shown = [*self.head, *self.summary, *filter(self._is_shown, self._tail)]
        self._windows = {}
        if self._count is not None:
            estimate = sum(map(self._count, (*self.summary, *self._tail[self._leading :])))
            self.tokens = max(0, self.tokens + estimate - self._estimate)
            self._estimate = estimate

    def newest(self, limit: int | None) -> list[ConversationMessage]:
        """Return at most `limit` messages of the view, the newest group always whole.

        The newest group comes first, then the head, then the summary, then older groups as far
        as whole ones fit, the newest of them first.

        Args:
            limit: at least 1; None for all.
        """
        window = self.known_window(limit)
        return self.window_work(limit)().copy() if window is None else window

    def known_window(self, limit: int | None) -> list[ConversationMessage] | None:
        """Return what :meth:`newest` returns where that costs no work; else None."""
        self._was_shown = True
        limit = self._capped(limit)
        if limit == len(self._shown) and self._present is None:
            return self._shown.copy()
        window = self._windows.get(limit)
        return None if window is None else window.copy()

    def window_work(self, limit: int | None) -> Callable[[], list[ConversationMessage]]:
        """Return what makes the window of a limit, in whichever thread; the view may change."""
        # A change of the view makes a new dict, so a window of an earlier state is never served.
        limit, windows, present = self._capped(limit), self._windows, self._present
        shown, leading = self._shown.copy(), self._leading
        head, summary = [*self.head, *self._tail[:leading]], list(self.summary)
        rest = shown[len(shown) - len(self._tail) + len(self._held_back) + leading :]

        def work() -> list[ConversationMessage]:
            window = shown if limit == len(shown) else _window(limit, head, summary, rest)
            windows[limit] = window if present is None else present(window)
            return windows[limit]

        return work

    def _capped(self, limit: int | None) -> int:
        return len(self._shown) if limit is None else min(limit, len(self._shown))


def _window(
    limit: int,
    head: list[ConversationMessage],
    summary: list[ConversationMessage],
    rest: list[ConversationMessage],
) -> list[ConversationMessage]:
    # Without a tail (system messages alone, or all of it retracted) other messages are newest.
    if not rest:
        rest, summary = summary, rest
    if not rest:
        rest, head = head, rest
    groups = turns.group(rest)
    start = groups.pop().start if groups else len(rest)
    room = limit - (len(rest) - start)
    shown: list[ConversationMessage] = []
    for part in (head, summary):
        if len(part) <= room:
            shown += part
            room -= len(part)
    while groups and groups[-1].stop - groups[-1].start <= room:
        room -= groups[-1].stop - groups[-1].start
        start = groups.pop().start
    return shown + rest[start:]
