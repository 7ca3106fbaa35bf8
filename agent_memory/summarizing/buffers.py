"""The buffers of many chats: which are held, and what each knows."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import attrs

from agent_memory.log import retraction_of
from agent_memory.messages import ChatKey
from agent_memory.records import Entry, LogSlice, SummaryRecord
from agent_memory.summarizing.options import Pace
from agent_memory.summarizing.overdue import Overdue
from agent_memory.summarizing.summarizer_task import SummarizerCall
from agent_memory.summarizing.view import ChatView

_LOOK_AGAIN: Final = 1.0  # seconds; a loop that is stopped or closed tells nobody


async def wait_for_end(ended: Future[Any], is_dead: Callable[[], bool]) -> bool:
    """Wait for something that goes on in whichever loop; a cancellation ends the wait.

    Returns:
        Whether it ended; not when its loop was stopped or closed under it.
    """
    while not ended.done() and not is_dead():
        await asyncio.wait([asyncio.wrap_future(ended)], timeout=_LOOK_AGAIN)
    return ended.done()


@attrs.define(eq=False)
class Flight:
    """One compaction under way.

    Args:
        ended: done when the compaction has ended, with its error or None.
        task: the task that carries it out, kept so that it is not collected.
    """

    ended: Future[Exception | None] = attrs.field(factory=Future[Exception | None])
    task: asyncio.Task[None] | None = None

    @property
    def is_dead(self) -> bool:
        """Whether its loop does not run any more: it counts as abandoned, and may be replaced.

        Should the loop run again, what it brings is dropped where another took its place.
        """
        return self.task is not None and not self.task.get_loop().is_running()

    def cancel(self) -> None:
        """Give it up, in its own loop."""
        if self.task is not None and not self.is_dead and not self.ended.done():
            self.task.get_loop().call_soon_threadsafe(self.task.cancel)


@attrs.define(eq=False)
class Load:
    """One read under way that makes a view.

    Args:
        ended: done when the read has ended, with whatever outcome.
        loop: the loop that carries it out.
    """

    ended: Future[None] = attrs.field(factory=Future[None])
    loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop)

    @property
    def is_dead(self) -> bool:
        """Whether the loop that carries it does not run any more."""
        return not self.loop.is_running()


@attrs.define(eq=False)
class Glance:
    """A look at the end of a chat that has no buffer.

    Args:
        most: how many of the newest entries are asked for.
        log: them; None until they are read.
        outdated: whether something of ours changed the chat since the look began.
    """

    most: int
    log: LogSlice | None = None
    outdated: bool = False

    @property
    def whole(self) -> LogSlice | None:
        """The log, if that is all of it."""
        return None if self.log is None or len(self.log.entries) >= self.most else self.log

    def since(self, position: int) -> LogSlice | None:
        """The log from a position on, if that was seen."""
        if self.log is None or not self.log.entries:
            return None
        entries = [entry for entry in self.log.entries if (entry.position or 0) >= position]
        seen = bool(entries) and entries[0].position == position
        return LogSlice(entries, self.log.floor) if seen else None


@attrs.define(eq=False)
class Buffer:
    """What is held of one activated chat. Changed only under the lock of :class:`Buffers`.

    Args:
        key: which chat.
        view: what the model sees; None until it is loaded, and when it has become void.
        seen: the highest position that a save of ours returned; a view that does not reach it
            is read up to it before it is shown.
        stale: whether a save left by an exception, so that the log must be asked.
        generation: rises when the view becomes void, so that a read that began before is not
            installed.
        early: entries that saves of ours stored beyond a hole, which other saves of ours, still
            on their way back, usually fill.
        loading: the read under way that loads the view.
        attempted: whether a first compaction has ended, or was not needed.
        flight: the compaction under way.
        calls: of summarizers; one may go on although its time is over.
        pace: how much has to come before the next attempt.
        overdue: what was told of compactions that were due and did not happen.
        unsaved: the record of the view's block, while it could not be written.
    """

    key: ChatKey
    view: ChatView | None = None
    seen: int = 0
    stale: bool = False
    generation: int = 0
    early: dict[int, Entry] = attrs.field(factory=dict[int, Entry])
    loading: Load | None = None
    attempted: bool = False
    flight: Flight | None = None
    calls: tuple[SummarizerCall, ...] = ()
    pace: Pace = attrs.field(factory=Pace)
    overdue: Overdue = attrs.field(factory=Overdue)
    unsaved: SummaryRecord | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way that needs this very buffer."""
        loads = self.loading is not None and not self.loading.is_dead
        flies = self.flight is not None and not self.flight.is_dead
        return not loads and not flies and all(call.done() for call in self.calls)

    @property
    def is_current(self) -> bool:
        """Whether the view shows everything that this process knows to be stored."""
        return self.view is not None and not self.stale and self.view.last >= self.seen

    def void(self) -> None:
        """Drop the view: the log it was made from is another one now."""
        self.view = None
        self.seen = 0
        self.stale = False
        self.unsaved = None
        self.early.clear()
        self.generation += 1
        self.pace, self.overdue = Pace(), Overdue()

    def retract(self) -> None:
        """Drop the view, which shows what was retracted, directly or in a summary."""
        self.void()
        self.attempted = False  # without its summary it may be long: who fetches waits for one

    def begin_call(self, call: SummarizerCall) -> None:
        """Note a call of a summarizer, until it has ended: it keeps its loop alive."""
        self.calls = (*(other for other in self.calls if not other.done()), call)
        call.when_done(self._forget_calls)

    def _forget_calls(self) -> None:
        self.calls = tuple(call for call in self.calls if not call.done())

    def mark_stale(self) -> None:
        """Have the log asked before the view is shown again: a save's answer was lost."""
        self.stale = True

    def end_flight(self, flight: Flight, error: Exception | None) -> None:
        """Tell those who wait for a compaction that it has ended."""
        if self.flight is flight:
            self.flight = None
        if not flight.ended.done():
            flight.ended.set_result(error)

    def saved(self, stored: LogSlice) -> None:
        """Take over what a save of ours stored."""
        if self.view is not None and self.view.floor != stored.floor:
            self.void()
        placed = {entry.position or 0: entry for entry in stored.entries}
        if self.view is not None and self._is_retracting(placed, self.view.last):
            self.retract()
        self.seen = max([self.seen, *placed])
        if self.view is not None and not self.stale:
            self.early.update(placed)
            self.take_early(self.view)

    @staticmethod
    def _is_retracting(placed: dict[int, Entry], last: int) -> bool:
        return any(
            position > last and retraction_of(entry) is not None
            for position, entry in placed.items()
        )

    def take_early(self, view: ChatView) -> None:
        """Add to the view what has come before it was its turn, as far as no hole is left."""
        while (following := self.early.pop(view.last + 1, None)) is not None:
            view.append((following,))
        if self.early:
            known = [position for position in self.early if position <= view.last]
            for position in known:
                del self.early[position]


class Buffers:
    """The buffers by chat, least recently used first.

    Args:
        most: how many are held; more only while more are busy.
        on_evicted: called with each buffer that gave way, under the lock.
    """

    def __init__(self, most: int, on_evicted: Callable[[Buffer], None]) -> None:
        self._most = most
        self._on_evicted = on_evicted
        self._by_key: OrderedDict[ChatKey, Buffer] = OrderedDict()
        self._glances: dict[ChatKey, list[Glance]] = {}
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
        """Change the chat's buffer, if it has one; looks at the chat are outdated by it."""
        with self.lock:
            for glance in self._glances.get(key, ()):
                glance.outdated = True
            buffer = self.get(key)
            if buffer is not None:
                change(buffer)

    @contextmanager
    def glance(self, key: ChatKey, most: int) -> Generator[Glance]:
        """Begin a look at a chat, which is told of changes of ours until it ends."""
        glance = Glance(most)
        with self.lock:
            self._glances.setdefault(key, []).append(glance)
        try:
            yield glance
        finally:
            with self.lock:
                self._glances[key].remove(glance)
                if not self._glances[key]:
                    del self._glances[key]

    def shrink(self) -> None:
        """Evict the least recently used idle buffers that are too many."""
        with self.lock:
            excess = len(self._by_key) - self._most
            if excess <= 0:
                return
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
    def flights(self) -> list[Flight]:
        """The compactions under way."""
        with self.lock:
            buffers = self._by_key.values()
            return [buffer.flight for buffer in buffers if buffer.flight is not None]
