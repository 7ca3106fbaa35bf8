"""Opening once, closing once, from whatever loops and threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_memory import StorageUnavailableError
from agent_memory.errors import StorageClosedError
from agent_memory.storage.hooks import Lifecycle
from agent_memory.testing import Gate


class Recorded(Lifecycle):
    """Records what happens, and opens as the test says."""

    def __init__(self, opening=None):
        self.events = []
        self._how = opening

    async def _open(self):
        self.events.append("open")
        if self._how is not None:
            await self._how()
        self.events.append("opened")

    async def _close(self):
        self.events.append("close")


async def test_it_opens_at_the_first_use_and_once():
    """Later uses find it open."""
    store = Recorded()
    assert store.events == []
    for _ in range(3):
        await store._ready()
    assert store.events == ["open", "opened"]


async def test_many_first_uses_open_it_once():
    """All wait for the one that opens."""
    gate = Gate()
    store = Recorded(gate.passed)
    users = [asyncio.ensure_future(store._ready()) for _ in range(5)]
    await gate.reached()
    await asyncio.sleep(0)
    assert not any(user.done() for user in users)
    gate.open()
    await asyncio.gather(*users)
    assert store.events == ["open", "opened"]


def test_c63_first_uses_in_many_loops_open_it_once():
    """Threads with loops of their own wait for each other."""
    at_once = threading.Barrier(8)

    async def slowly():
        for _ in range(20):
            await asyncio.sleep(0)

    store = Recorded(slowly)

    def use():
        at_once.wait()
        asyncio.run(store._ready())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.events == ["open", "opened"]


async def test_a_failed_opening_is_told_to_all_and_tried_again():
    """Everybody who waited gets the error; the next use tries anew."""
    gate, answers = Gate(), [StorageUnavailableError("not yet"), None]

    async def opening():
        await gate.passed()
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    store = Recorded(opening)
    users = [asyncio.ensure_future(store._ready()) for _ in range(3)]
    await gate.reached()
    gate.open()
    outcomes = await asyncio.gather(*users, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["not yet"] * 3
    await store._ready()
    assert store.events == ["open", "open", "opened"]


async def test_c22_a_cancelled_first_use_leaves_it_open():
    """The opening goes on to its end; the next use finds it done."""
    gate = Gate()
    store = Recorded(gate.passed)
    user = asyncio.ensure_future(store._ready())
    await gate.reached()
    user.cancel()
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await user
    await store._ready()
    assert store.events == ["open", "opened"]


def test_c63_a_loop_that_ends_while_it_opens_cancels_nobody_else():
    """Whoever waited in another loop opens the store itself."""
    opening, waiting = threading.Event(), threading.Event()
    attempts, outcomes = [], []

    async def first_hangs():
        attempts.append(True)
        if len(attempts) == 1:
            opening.set()
            await asyncio.Event().wait()

    store = Recorded(first_hangs)

    async def abandon():
        task = asyncio.ensure_future(store._ready())
        await asyncio.to_thread(waiting.wait)
        return task

    async def use():
        task = asyncio.ensure_future(store._ready())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.set()
        await task
        outcomes.append("open")

    first = threading.Thread(target=asyncio.run, args=(abandon(),))
    first.start()
    opening.wait()
    asyncio.run(use())
    first.join()
    assert outcomes == ["open"]
    assert store.events == ["open", "open", "opened"]


async def test_closing_twice_closes_once():
    """The second call has nothing to do."""
    store = Recorded()
    await store._ready()
    await asyncio.gather(store.aclose(), store.aclose())
    await store.aclose()
    assert store.events == ["open", "opened", "close"]


async def test_a_closed_store_does_not_open_again():
    """Its name is in the error."""
    store = Recorded()
    await store.aclose()
    with pytest.raises(StorageClosedError, match="Recorded is closed"):
        await store._ready()
    assert store.events == ["close"]


async def test_a_store_closed_while_it_opens_is_closed_afterwards():
    """Nothing stays open behind the caller's back, and the opener is told."""
    gate = Gate()
    store = Recorded(gate.passed)
    user = asyncio.ensure_future(store._ready())
    await gate.reached()
    closing = asyncio.ensure_future(store.aclose())
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(StorageClosedError):
        await user
    await closing
    assert store.events[-1] == "close"
    assert store.events.index("opened") < len(store.events) - 1


async def test_c22_a_cancelled_close_closes():
    """Closing is settled like saving."""
    gate = Gate()

    class Slow(Recorded):
        async def _close(self):
            await gate.passed()
            await super()._close()

    store = Slow()
    closing = asyncio.ensure_future(store.aclose())
    await gate.reached()
    closing.cancel()
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert store.events == ["close"]


async def test_the_context_opens_and_closes():
    """``async with`` opens at its head."""
    async with Recorded() as store:
        assert store.events == ["open", "opened"]
    assert store.events == ["open", "opened", "close"]
