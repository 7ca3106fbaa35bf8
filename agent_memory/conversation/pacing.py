"""When the summarizer of a thread may be asked again, whichever run asks."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict

import attrs

from agent_memory.messages import ChatKey
from agent_memory.summarizing.buffers import Buffer
from agent_memory.summarizing.options import Pace
from agent_memory.summarizing.overdue import Overdue


@attrs.define(eq=False)
class ThreadPace:
    """What the runs of one thread know of each other's attempts.

    Args:
        growth: how much has to come before the next attempt.
        overdue: what was told of compactions that were due and did not happen.
        stuck: the buffer of a run whose call goes on although its time is over: until it ends,
            no other run asks.
        record_id: the record that a run installed last, None if none did.
    """

    growth: Pace = attrs.field(factory=Pace)
    overdue: Overdue = attrs.field(factory=Overdue)
    stuck: Buffer | None = None
    record_id: str | None = None
    _asking: weakref.ref[asyncio.AbstractEventLoop] | None = None

    @property
    def is_free(self) -> bool:
        """Whether no run is asking now."""
        if self.stuck is not None and self.stuck.is_idle:
            self.stuck = None
        loop = None if self._asking is None else self._asking()
        # A run whose loop has stopped in the middle of its attempt holds up no other.
        return self.stuck is None and (loop is None or not loop.is_running())

    def begin(self, messages: int, tokens: int) -> None:
        """Note that a run asks, and how many messages and tokens its view has."""
        self._asking = weakref.ref(asyncio.get_running_loop())
        self.growth.begin(messages, tokens)

    def end(self, buffer: Buffer) -> None:
        """Note that a run does not ask any more."""
        self._asking = None
        self.stuck = None if buffer.is_idle else buffer


class Paces:
    """The paces of the threads used last.

    Args:
        most: how many are held; the least recently used gives way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_key: OrderedDict[ChatKey, ThreadPace] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: ChatKey) -> ThreadPace:
        """Return a thread's pace."""
        with self._lock:
            pace = self._by_key.pop(key, None) or ThreadPace()
            self._by_key[key] = pace
            if len(self._by_key) > self._most:
                self._by_key.popitem(last=False)
            return pace
