"""Many tasks of a loop are woken with one call into it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from agent_memory.storage._engine.handoff import LoopWaker, waker_of


class CountingLoop:
    """Counts the calls that cross into a loop, and makes them when told to."""

    def __init__(self):
        self.calls = []

    def call_soon_threadsafe(self, function, *args):
        self.calls.append(partial(function, *args))


def test_what_comes_together_crosses_once():
    """One system call for a group, all woken in order; the next group has its own."""
    loop, wakes, woken = CountingLoop(), LoopWaker(), []
    for number in range(5):
        wakes.put(loop, [lambda number=number: woken.append(number)])
    assert len(loop.calls) == 1
    loop.calls.pop()()
    assert woken == [0, 1, 2, 3, 4]
    wakes.put(loop, [lambda: woken.append(5), lambda: woken.append(6)])
    loop.calls.pop()()
    assert woken[-2:] == [5, 6]


def test_a_wake_that_asks_for_another_is_not_lost():
    """What is put while wakes are being called is called next time."""
    loop, wakes, woken = CountingLoop(), LoopWaker(), []
    wakes.put(loop, [lambda: wakes.put(loop, [lambda: woken.append("second")])])
    loop.calls.pop()()
    assert woken == []
    loop.calls.pop()()
    assert woken == ["second"]


def test_what_interrupts_one_wake_keeps_no_other_from_coming():
    """An interrupt in the midst: those not yet woken, and that one, are called again."""
    loop, wakes, woken = CountingLoop(), LoopWaker(), []
    interrupts = iter([KeyboardInterrupt()])

    def interrupted():
        for error in interrupts:
            raise error
        woken.append(2)

    wakes.put(loop, [lambda: woken.append(1), interrupted, lambda: woken.append(3)])
    with pytest.raises(KeyboardInterrupt):
        loop.calls.pop()()
    assert woken == [1]
    loop.calls.pop()()
    assert woken == [1, 2, 3]


def test_a_closed_loop_is_no_error():
    """Nobody waits there any more."""
    loop = asyncio.new_event_loop()
    loop.close()
    LoopWaker().put(loop, [lambda: None])


async def test_nothing_is_lost_between_threads():
    """Every wake from many threads arrives, each once."""
    loop, woken, done = asyncio.get_running_loop(), [], asyncio.Event()
    wakes = waker_of(loop)
    assert waker_of(loop) is wakes

    def wake(number):
        woken.append(number)
        if len(woken) == 400:
            done.set()

    def send(start):
        for number in range(start, start + 100):
            wakes.put(loop, [lambda number=number: wake(number)])

    threads = [threading.Thread(target=send, args=(start,)) for start in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    await done.wait()
    for thread in threads:
        thread.join()
    assert sorted(woken) == list(range(400))


def test_a_loop_that_is_gone_is_forgotten():
    """Programs that make many loops do not grow."""
    loop = asyncio.new_event_loop()
    waker_of(loop)
    gone = weakref.ref(loop)
    loop.close()
    del loop
    gc.collect()
    assert gone() is None


def test_a_loop_that_was_closed_with_wakes_to_come_is_forgotten():
    """When the next loop is used: what was to be called refers to the closed one."""
    loop = asyncio.new_event_loop()
    waker_of(loop).put(loop, [lambda loop=loop: None])
    gone = weakref.ref(loop)
    loop.close()
    del loop
    other = asyncio.new_event_loop()
    waker_of(other)
    other.close()
    gc.collect()
    assert gone() is None
