"""Sharing an event loop: work that takes long is done for a few chats in each of its rounds.

Tasks that are ready at the same moment run one after the other before the loop looks at timers and
sockets again. A thousand chats that are summarized together would hold it for half a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from agent_memory.storage._engine.shared_task import PerLoop

T = TypeVar("T")

OFF_LOOP: Final = 500
"""Messages; pure work on more of them is done in a worker thread."""
AT_ONCE: Final = 4
"""Pieces of work in a round of the loop; each takes a millisecond or less, as a rule."""


class FairShare:
    """Lets the tasks of one loop take turns; not for other threads."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def turn(self) -> None:
        """Wait until it is this task's turn; at once while few want one."""
        loop = asyncio.get_running_loop()
        self._count(loop)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn  # a cancelled waiter leaves a turn unused; the next round makes up for it

    def _count(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._counting:
            self._counting = True
            loop.call_soon(self._next_round, loop)

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._counting = False
        self._left = AT_ONCE
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._waiting or self._left < AT_ONCE:
            self._count(loop)


_shares: Final = PerLoop(FairShare)


async def take_turn() -> None:
    """Wait for a turn in the running loop, before work that takes long."""
    await _shares.of(asyncio.get_running_loop()).turn()


async def run_fairly(messages: int, work: Callable[[], T]) -> T:
    """Do pure work on messages in its turn, or in a thread where there are many of them."""
    if messages <= OFF_LOOP:
        await take_turn()
        return work()
    return await asyncio.to_thread(work)
