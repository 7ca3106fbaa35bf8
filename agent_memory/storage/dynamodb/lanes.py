"""What a store keeps in memory of the chats it writes to."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import attrs

from agent_memory.messages import ChatKey
from agent_memory.storage.dynamodb.log_end import LogEnd
from agent_memory.storage.dynamodb.planning import Save

_MOST: Final = 4096
"""So many chats' ends are kept, at about 500 bytes each; the next append to another reads it."""


@attrs.define(eq=False)
class Lane:
    """One chat's: writers of this store take turns in it.

    Attributes:
        lock: held while one of them writes.
        waiting: saves that have not been written.
        end: the log's end, as far as known.
    """

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    waiting: list[Save] = attrs.field(factory=list[Save])
    end: LogEnd | None = None

    @property
    def idle(self) -> bool:
        """Whether nobody uses it."""
        return not self.waiting and not self.lock.locked()


class Lanes:
    """The lanes of a store, those of idle chats forgotten when there are many."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[ChatKey, Lane] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lanes)

    def of(self, key: ChatKey) -> Lane:
        """Return a chat's lane; use it before anything is awaited."""
        lane = self._lanes.get(key)
        if lane is None:
            self._make_room()
            lane = self._lanes[key] = Lane()
        self._lanes.move_to_end(key)
        return lane

    def _make_room(self) -> None:
        if len(self._lanes) < _MOST:
            return
        for key, lane in self._lanes.items():
            if lane.idle:
                del self._lanes[key]
                return
