"""Work that waits for one chat, done by one thread at a time and together where it can be.

While a chat's file is brought to the disk, further saves gather and share the next write. An
idle chat adds no delay: the first save starts at once. When more chats wait than there are
threads, each thread takes several at a time and, on a disk that is quick, tells their callers
together.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import attrs

from agent_memory.errors import StorageClosedError, StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.records import LogSlice
from agent_memory.storage._engine.handoff import Handoff, answer_all
from agent_memory.storage.file.appender import Appender, AppendGroup, Batch
from agent_memory.storage.file.disk import interrupted

T = TypeVar("T")
_Waiting: TypeAlias = tuple[Handoff[Any], "Batch | Callable[[], Any]"]

_LARGEST_GROUP: Final = 512  # batches in one write
_LARGEST_SHARE: Final = 8  # chats that one thread has open at a time: files are limited
_SLOW: Final = 0.001  # seconds of a sync after which those who wait are told at once


class _Work(Protocol):
    """What a thread does for one chat: the appends that wait together, or one call."""

    outcomes: list[Any]

    def run(self) -> None:
        """Do it; raise nothing that is an ``Exception``."""

    def abandon(self, error: BaseException) -> None:
        """Have those who wait told that something ended the thread's work."""


@attrs.define(eq=False)
class _Call:
    """A function whose result, or error, is the outcome."""

    key: ChatKey
    function: Callable[[], Any]
    outcomes: list[Any] = attrs.field(factory=list[Any], init=False)

    def run(self) -> None:
        """Call it."""
        try:
            self.outcomes = [self.function()]
        except Exception as error:  # noqa: BLE001 - handed to the caller that waits
            self.outcomes = [error]

    def abandon(self, error: BaseException) -> None:
        """Have the caller told."""
        self.outcomes = self.outcomes or [interrupted(self.key, error)]


@attrs.define(eq=False)
class _Turn:
    """A thread's work for one chat, and who waits for it."""

    key: ChatKey
    replies: list[Handoff[Any]]
    work: _Work
    is_left: bool = attrs.field(default=False, init=False)
    is_told: bool = attrs.field(default=False, init=False)

    def answers(self) -> Iterable[tuple[Handoff[Any], Any]]:
        """Return what each caller is told."""
        return zip(self.replies, self.work.outcomes, strict=True)


class ChatQueues:
    """A queue for each chat that somebody waits for, none for the others.

    Args:
        appender: appends what waited together.
        threads: how many chats are brought to the disk at the same time.
    """

    def __init__(self, appender: Appender, threads: int) -> None:
        self._appender = appender
        self._threads = threads
        self._lock = threading.Lock()
        self._waiting: dict[ChatKey, deque[_Waiting]] = {}
        self._ready: deque[ChatKey] = deque()  # those of them that no thread works on
        self._alone: deque[_Turn] = deque()  # to be run by themselves: they may have to wait
        self._working = 0
        self._is_closed = False
        # One thread at a time prepares and writes: the interpreter runs no two at once, and
        # when they take turns at every system call, that costs more than the writing.
        self._writing = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, "agent_memory-file-write")

    def append(self, key: ChatKey, batch: Batch) -> Handoff[LogSlice]:
        """Append a batch in another thread.

        Raises:
            StorageClosedError: the queues are closed.
        """
        return self._put(key, batch)

    def call(self, key: ChatKey, function: Callable[[], T]) -> Handoff[T]:
        """Call a function in another thread, in turn with the chat's appends.

        Raises:
            StorageClosedError: the queues are closed.
        """
        return self._put(key, function)

    def close(self) -> None:
        """Finish what waits; take nothing more."""
        self._is_closed = True
        self._executor.shutdown(wait=True)

    def _put(self, key: ChatKey, work: Batch | Callable[[], Any]) -> Handoff[Any]:
        reply: Handoff[Any] = Handoff()
        with self._lock:
            queue = self._waiting.get(key)
            if queue is not None:
                queue.append((reply, work))
                return reply
            if self._working < self._threads:
                self._start(key)
            self._waiting[key] = deque([(reply, work)])
            self._ready.append(key)
        return reply

    def _start(self, key: ChatKey) -> None:
        """Have one thread more at work; the lock is held."""
        try:
            self._executor.submit(self._work)
        except RuntimeError as error:
            if self._is_closed:
                raise StorageClosedError("the store is closed", key=key) from None
            if self._working == 0:
                raise StorageUnavailableError(
                    f"no thread can be started to save: {error}; nothing was stored", key=key
                ) from error
            return  # those at work do it
        self._working += 1

    # --------------------------------------------------------------------- in a worker thread

    def _work(self) -> None:
        while turns := self._take():
            try:
                self._do(turns)
            except BaseException as error:
                self._abandon(turns, error)
                raise

    def _do(self, turns: list[_Turn]) -> None:
        if len(turns) == 1 and turns[0].is_left:
            turns[0].work.run()
            self._tell(turns)
            return
        self._append_together(turns)
        self._leave([turn for turn in turns if not turn.is_told])

    def _take(self) -> list[_Turn]:
        """Take a chat that was left, or this thread's share of what is ready."""
        with self._lock:
            if self._alone:
                return [self._alone.popleft()]
            turns: list[_Turn] = []
            share = min(_LARGEST_SHARE, 1 + len(self._ready) // self._threads)
            while self._ready and len(turns) < share:
                key = self._ready.popleft()
                turns.append(self._turn(key))
            if not turns:
                self._working = max(0, self._working - 1)
            return turns

    def _leave(self, turns: list[_Turn]) -> None:
        """Have each of these done by itself: calls, new chats, chats that another process holds.

        A thread that waits for another process holds no other chat, and keeps nobody waiting.
        """
        with self._lock:
            for turn in turns:
                turn.is_left = True
                self._alone.append(turn)
            for turn in turns[1:]:  # this thread does one of them next
                if self._working < self._threads:
                    with suppress(StorageClosedError, StorageUnavailableError):
                        self._start(turn.key)

    def _abandon(self, turns: list[_Turn], error: BaseException) -> None:
        """Leave nobody waiting when something ends this thread's work."""
        with self._lock:
            self._working = max(0, self._working - 1)
        alone = len(turns) == 1
        mine = [turn for turn in turns if not turn.is_told and (alone or not turn.is_left)]
        for turn in mine:
            turn.work.abandon(error)
        self._tell(mine)
        with self._lock, suppress(StorageClosedError, StorageUnavailableError):
            if (self._ready or self._alone) and self._working < self._threads:
                self._start(turns[0].key)

    def _turn(self, key: ChatKey) -> _Turn:
        """Take the appends that come first in a chat's queue, or one call."""
        queue = self._waiting[key]
        reply, work = queue.popleft()
        if callable(work):
            return _Turn(key, [reply], _Call(key, work))
        replies, batches = [reply], [work]
        while queue and len(batches) < _LARGEST_GROUP and not callable(queue[0][1]):
            reply, work = queue.popleft()
            replies.append(reply)
            batches.append(cast("Batch", work))
        return _Turn(key, replies, self._appender.group(key, batches))

    def _append_together(self, turns: list[_Turn]) -> None:
        """Append to all chats that can be had at once, and leave the others."""
        groups = [(turn, turn.work) for turn in turns if isinstance(turn.work, AppendGroup)]
        with self._writing:
            for _, group in groups:
                group.begin()
        done: list[tuple[_Turn, AppendGroup]] = []
        for turn, group in groups:
            started = time.perf_counter()
            group.sync()
            done.append((turn, group))
            if time.perf_counter() - started > _SLOW:
                self._end(done)
                done = []
        self._end(done)

    def _end(self, groups: list[tuple[_Turn, AppendGroup]]) -> None:
        """Give back the chats that were begun, and tell those who wait what is known."""
        with self._writing:
            for _, group in groups:
                group.end()
        self._tell([turn for turn, group in groups if group.outcomes])

    def _tell(self, turns: list[_Turn]) -> None:
        """Give chats back, and tell those who wait how it went."""
        with self._lock:
            for turn in turns:
                turn.is_told = True
                if self._waiting[turn.key]:
                    self._ready.append(turn.key)
                else:
                    del self._waiting[turn.key]
        answer_all(chain.from_iterable(turn.answers() for turn in turns))
