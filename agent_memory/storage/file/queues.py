"""Work that waits for one chat, done by one thread at a time and together where it can be.

While a chat's file is brought to the disk, further saves gather and share the next write. An
idle chat adds no delay: the first save starts at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from agent_memory.errors import StorageClosedError
from agent_memory.messages import ChatKey
from agent_memory.records import LogSlice
from agent_memory.storage.file.appending import Batch, Outcome
from agent_memory.storage.replies import Reply, answer_all

T = TypeVar("T")
_Waiting: TypeAlias = tuple[Reply[Any], "Batch | Callable[[], Any]"]

_LARGEST_GROUP: Final = 512  # batches in one write


class AppendGroup(Protocol):
    """Appends batches to one chat; each has its own outcome."""

    def __call__(self, key: ChatKey, batches: list[Batch]) -> list[Outcome]:
        """Append them."""
        ...


class ChatQueues:
    """A queue for each chat that somebody waits for, none for the others.

    Args:
        append: appends what waited together.
        threads: how many chats are written to at the same time.
    """

    def __init__(self, append: AppendGroup, threads: int) -> None:
        self._append = append
        self._lock = threading.Lock()
        self._waiting: dict[ChatKey, deque[_Waiting]] = {}
        self._executor = ThreadPoolExecutor(threads, "agent_memory-file-write")

    def append(self, key: ChatKey, batch: Batch) -> Reply[LogSlice]:
        """Append a batch in another thread.

        Raises:
            StorageClosedError: the queues are closed.
        """
        return self._put(key, batch)

    def call(self, key: ChatKey, function: Callable[[], T]) -> Reply[T]:
        """Call a function in another thread, in turn with the chat's appends.

        Raises:
            StorageClosedError: the queues are closed.
        """
        return self._put(key, function)

    def close(self) -> None:
        """Finish what waits; take nothing more."""
        self._executor.shutdown(wait=True)

    def _put(self, key: ChatKey, work: Batch | Callable[[], Any]) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        with self._lock:
            queue = self._waiting.get(key)
            if queue is not None:
                queue.append((reply, work))
                return reply
            try:
                self._executor.submit(self._serve, key)
            except RuntimeError:
                raise StorageClosedError("the store is closed", key=key) from None
            self._waiting[key] = deque([(reply, work)])
        return reply

    def _serve(self, key: ChatKey) -> None:
        """Do what waits for one chat, then let other chats have the thread."""
        while True:
            with self._lock:
                group = _take_group(self._waiting[key])
            self._do(key, group)
            with self._lock:
                if not self._waiting[key]:
                    del self._waiting[key]
                    return
                try:
                    self._executor.submit(self._serve, key)
                    return
                except RuntimeError:  # it is shutting down, and takes nothing new
                    continue

    def _do(self, key: ChatKey, group: list[_Waiting]) -> None:
        first = group[0][1]
        if callable(first):
            _settle(group[0][0], first)
            return
        batches = [work for _, work in group if not callable(work)]
        try:
            outcomes = self._append(key, batches)
        except Exception as error:  # noqa: BLE001 - else whoever waits would wait for ever
            outcomes = [error for _ in batches]
        answer_all(zip([reply for reply, _ in group], outcomes, strict=True))


def _take_group(queue: deque[_Waiting]) -> list[_Waiting]:
    """Take the appends that come first in a queue, or one call."""
    group = [queue.popleft()]
    while (
        queue
        and len(group) < _LARGEST_GROUP
        and not callable(group[0][1])
        and not callable(queue[0][1])
    ):
        group.append(queue.popleft())
    return group


def _settle(reply: Reply[Any], function: Callable[[], Any]) -> None:
    try:
        result = function()
    except Exception as error:  # noqa: BLE001 - handed to the caller that waits
        reply.set_exception(error)
    else:
        reply.set_result(result)
