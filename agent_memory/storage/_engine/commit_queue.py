"""The queue of a store's saves, and how they become groups.

Work waits in lanes: one for each chat, or one for the whole store. Saves that wait together in
a lane are committed together; a call, such as a trim, takes its turn among them. What runs the
groups, threads or tasks of an event loop, is in :mod:`agent_memory.storage._engine.group_commit`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import attrs

from agent_memory.errors import StorageClosedError
from agent_memory.keys import ChatKey
from agent_memory.log import Entry, LogSlice
from agent_memory.storage._engine.append_plan import PendingSave
from agent_memory.storage._engine.handoff import Handoff, answer_all, error_for_waiter

E = TypeVar("E")
T = TypeVar("T")


@attrs.frozen
class Bounds:
    """Limits of a group, so that no caller waits for one of unlimited size.

    A save that exceeds a limit by itself is committed alone.
    """

    saves: int = 1_000
    entries: int = 1_000
    characters: int = 4_000_000


@attrs.define(eq=False)
class Call:
    """A function that takes its turn among the saves."""

    key: ChatKey | None
    function: Callable[[], Any]


class FutureHandoff(Future[T]):
    """Takes the place of a :class:`Handoff` for a caller outside any event loop."""

    @property
    def is_answered(self) -> bool:
        """Whether the outcome has been given."""
        return self.done()


_Work: TypeAlias = PendingSave[Any] | Call
_Waiting: TypeAlias = tuple[Handoff[Any] | FutureHandoff[Any], _Work]


@attrs.define(eq=False)
class Batch:
    """The saves of a group, or one call, that are taken together; and who waits for them."""

    lane: ChatKey | None
    waiting: list[_Waiting]
    has_begun: bool = attrs.field(default=False, init=False)
    is_released: bool = attrs.field(default=False, init=False)

    @property
    def call(self) -> Call | None:
        """The call, if it is one."""
        work = self.waiting[0][1]
        return work if isinstance(work, Call) else None

    @property
    def saves(self) -> list[PendingSave[Any]]:
        """The saves of a group."""
        return [cast("PendingSave[Any]", work) for _, work in self.waiting]

    def check(self, outcomes: Sequence[Any]) -> None:
        """Raise unless there is an outcome for each save: one without would wait for ever."""
        if len(outcomes) != len(self.waiting):
            raise AssertionError(f"{len(outcomes)} outcomes for {len(self.waiting)} saves")


class CommitQueue(ABC, Generic[E]):
    """The queue of a store's saves, and of calls that must keep their place among them.

    Thread-safe. Whoever waits is answered exactly once, whatever happens to the commit.

    Args:
        by: ``"chat"``: one group of a chat is in flight at a time, and groups hold the saves
            of one chat. ``"store"``: a group holds saves of any chats.
        max_in_flight: how many groups are in flight at a time; None for no limit.
        bounds: of a group.
        error_for: returns the error that one waiter raises for an error of the commit, which
            several may share, and which may be an interrupt; by default
            :func:`error_for_waiter`.
    """

    def __init__(
        self,
        *,
        by: Literal["store", "chat"],
        max_in_flight: int | None,
        bounds: Bounds,
        error_for: Callable[[BaseException, ChatKey | None], BaseException] | None,
    ) -> None:
        self._by_chat = by == "chat"
        self._max_in_flight = max_in_flight
        self._bounds = bounds
        self._error_for = error_for or error_for_waiter
        self._lock = threading.Lock()
        # A lane is a chat, or None for the store. One that has work, or is busy, is in here.
        self._lanes: dict[ChatKey | None, deque[_Waiting]] = {}
        self._ready: deque[ChatKey | None] = deque()
        self._in_flight = 0
        self._is_closed = False
        self._drained = Future[None]()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._lanes and not self._in_flight

    async def save(
        self, key: ChatKey, entries: Sequence[Entry], encoded: Sequence[E], size: int
    ) -> LogSlice:
        """Commit a save, together with others that wait; a cancellation waits for the end.

        Raises:
            StorageClosedError: the queue is closed.
        """
        handoff: Handoff[LogSlice] = Handoff()
        self._put(handoff, PendingSave(key, entries, encoded, size))
        return await handoff.wait()

    def close(self) -> Future[None]:
        """Accept no more work; the future is done when everything that waits has been done."""
        with self._lock:
            first, self._is_closed = not self._is_closed, True
            if first and self.is_idle:
                self._report_drained()
        return self._drained

    # ------------------------------------------------------------------- for the two drivers

    async def _call(self, function: Callable[[], Any], key: ChatKey | None) -> Any:
        handoff: Handoff[Any] = Handoff()
        self._put(handoff, Call(key, function))
        return await handoff.wait()

    def _put(self, handoff: Handoff[Any] | FutureHandoff[Any], work: _Work) -> None:
        lane = work.key if self._by_chat else None
        with self._lock:
            if self._is_closed:
                raise StorageClosedError("the store is closed", key=work.key)
            waiting = self._lanes.get(lane)
            if waiting is not None:
                waiting.append((handoff, work))  # busy, or ready already
                return
            self._lanes[lane] = deque([(handoff, work)])
            try:
                self._make_ready(lane)
            except BaseException:
                self._ready.remove(lane)
                del self._lanes[lane]
                raise

    def _make_ready(self, lane: ChatKey | None) -> None:
        """Let a batch of a lane be taken; the lock is held."""
        self._ready.append(lane)
        self._wake_driver()

    @abstractmethod
    def _wake_driver(self) -> None:
        """Have a thread or task take one batch more; the lock is held.

        Raises:
            StorageUnavailableError: no thread runs, and none can be started.
        """

    def _report_drained(self) -> None:
        """Have the future resolved that :meth:`close` returned; the lock is held."""
        self._drained.set_result(None)

    def _take(self) -> Batch | None:
        """Take a batch that may be done now; the lock is held."""
        if not self._ready or (
            self._max_in_flight is not None and self._in_flight >= self._max_in_flight
        ):
            return None
        lane = self._ready.popleft()
        waiting = self._lanes[lane]
        batch = Batch(lane, self._next_group(waiting))
        self._in_flight += 1
        if not self._by_chat:
            if waiting:
                self._make_ready(lane)
            else:
                del self._lanes[lane]
        return batch

    def _next_group(self, waiting: deque[_Waiting]) -> list[_Waiting]:
        taken = [waiting.popleft()]
        work = taken[0][1]
        if isinstance(work, Call):
            return taken
        bounds = self._bounds
        entries, characters = len(work.entries), work.size
        while waiting and len(taken) < bounds.saves:
            work = waiting[0][1]
            if isinstance(work, Call):
                break
            entries += len(work.entries)
            characters += work.size
            if entries > bounds.entries or characters > bounds.characters:
                break
            taken.append(waiting.popleft())
        return taken

    def _release_lane(self, batch: Batch) -> None:
        """Let the next batch of this lane be taken."""
        with self._lock:
            if batch.is_released:
                return
            batch.is_released = True
            self._in_flight -= 1
            if self._by_chat:
                if self._lanes[batch.lane]:
                    self._make_ready(batch.lane)
                else:
                    del self._lanes[batch.lane]
            if self._is_closed and self.is_idle:
                self._report_drained()

    def _answer(self, batch: Batch, outcomes: Sequence[Any]) -> None:
        handoffs: list[Handoff[Any]] = []
        for handoff, _ in batch.waiting:
            if isinstance(handoff, FutureHandoff):  # a call, alone in its batch
                handoff.set_result(outcomes[0])
                return
            handoffs.append(handoff)
        answer_all(zip(handoffs, outcomes, strict=True))

    def _fail(self, waiting: Sequence[_Waiting], error: BaseException) -> None:
        """Fail those that have no answer yet; each raises a copy of the error."""
        for handoff, work in waiting:
            if not handoff.is_answered:
                handoff.set_exception(self._error_for(error, work.key))
