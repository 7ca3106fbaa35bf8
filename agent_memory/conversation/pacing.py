"""When the summarizer of a thread may be asked again, whichever run asks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.storage.summarizing.buffers import Buffer
from agent_memory.storage.summarizing.policy import Trigger
from agent_memory.view import ChatView

_PAIR: Final = 2
_LONGEST_WAIT: Final = 32  # limits; a summarizer that keeps failing is still tried sometimes


@attrs.define(eq=False)
class Pace:
    """What the runs of one thread know of each other's attempts.

    Args:
        stuck: the buffer of a run whose call goes on although its time is over: until it ends,
            no other run asks.
        is_busy: whether a run is asking now.
        record_id: the record that a run installed last, None if none did.
        failures: attempts that failed in a row.
        waited_from: the newest position at the last attempt.
        wait: new entries to wait for since then.
    """

    stuck: Buffer | None = None
    is_busy: bool = False
    record_id: str | None = None
    failures: int = 0
    waited_from: int = 0
    wait: int = 0

    def allows(self, view: ChatView) -> bool:
        """Whether a run with this view may ask now."""
        if self.stuck is not None and self.stuck.is_idle:
            self.stuck = None
        if self.is_busy or self.stuck is not None:
            return False
        # In a chat that was deleted and purged positions start anew.
        return not 0 <= view.last - self.waited_from < self.wait

    def begin(self, view: ChatView) -> None:
        """Note that a run asks."""
        self.is_busy = True
        self.waited_from = view.last

    def end(self, buffer: Buffer) -> None:
        """Note that a run does not ask any more."""
        self.is_busy = False
        self.stuck = None if buffer.is_idle else buffer

    def answered(self, wait: int) -> None:
        """Note that an attempt did not fail, and how many entries to wait for."""
        self.failures, self.wait = 0, wait

    def failed(self, trigger: Trigger) -> None:
        """Note that an attempt failed: each time the wait doubles."""
        self.wait = min(_PAIR << min(self.failures, 30), _LONGEST_WAIT * trigger.messages)
        self.failures += 1


class Paces:
    """The paces of the threads used last.

    Args:
        most: how many are held; the least recently used gives way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_key: OrderedDict[ChatKey, Pace] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: ChatKey) -> Pace:
        """Return a thread's pace."""
        with self._lock:
            pace = self._by_key.pop(key, None) or Pace()
            self._by_key[key] = pace
            if len(self._by_key) > self._most:
                self._by_key.popitem(last=False)
            return pace
