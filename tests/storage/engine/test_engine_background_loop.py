"""A thread with an event loop, and the loop of a caller."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref

import pytest

from agent_memory.errors import InvalidRequestError, StorageClosedError
from agent_memory.storage._engine.background_loop import BackgroundLoop, CallersLoop
from agent_memory.storage._engine.handoff import result_of


@pytest.fixture
def loop():
    made = BackgroundLoop("test-background-loop")
    yield made
    made.stop()
    assert not made._thread.is_alive()


async def nothing():
    pass


async def test_work_is_done_in_its_thread(loop):
    """Its result, or its error, is the future's."""

    async def work():
        return threading.current_thread().name

    async def fail():
        raise LookupError

    assert await result_of(loop.submit(work())) == "test-background-loop"
    with pytest.raises(LookupError):
        await result_of(loop.submit(fail()))
    assert not loop.is_current


async def test_draining_waits_for_what_runs_and_what_that_starts(loop):
    """`finish` comes last, in the loop; then the thread ends."""
    seen, may_end = [], threading.Event()

    async def child():
        seen.append("child")

    async def work():
        await asyncio.to_thread(may_end.wait)
        asyncio.get_running_loop().create_task(child())
        seen.append("work")

    async def finish():
        seen.append("finish")

    work_done = loop.submit(work())
    stopped = loop.drain_and_stop(finish)
    assert loop.drain_and_stop(nothing) is stopped
    with pytest.raises(StorageClosedError):
        loop.call_soon(seen.append, "late")
    with pytest.raises(StorageClosedError):
        loop.submit(nothing())
    assert not stopped.done()
    may_end.set()
    await result_of(stopped)
    assert work_done.done()
    assert seen == ["work", "child", "finish"]
    loop._thread.join(10)
    assert not loop._thread.is_alive()


async def test_an_error_at_the_end_is_told_when_the_thread_has_ended(loop):
    """A client that cannot be closed keeps no thread alive."""

    async def finish():
        raise LookupError("not closed")

    with pytest.raises(LookupError, match="not closed"):
        await result_of(loop.drain_and_stop(finish))


def test_an_interrupt_at_the_end_ends_the_thread(loop):
    """What waits for it is told."""

    async def finish():
        raise SystemExit(7)

    stopped = loop.drain_and_stop(finish)
    with pytest.raises(SystemExit, match="7"):
        stopped.result(20)


class Work:
    """Waits in another loop until it is let go on."""

    def __init__(self):
        self.has_begun, self.may_end = threading.Event(), asyncio.Event()

    async def run(self):
        self.has_begun.set()
        await self.may_end.wait()
        return 7


async def test_what_is_left_is_cancelled_when_it_is_abandoned(loop):
    """Nobody waits for it any more."""
    work = Work()
    waiting = loop.submit(work.run())
    await asyncio.to_thread(work.has_begun.wait)
    loop.abandon()
    with pytest.raises(concurrent.futures.CancelledError):
        await result_of(waiting)


@pytest.mark.parametrize("interrupt", [SystemExit, KeyboardInterrupt])
async def test_an_interrupt_ends_one_task_and_not_the_loop(loop, interrupt):
    """Asyncio lets these end ``run_forever``; the other callers' work goes on."""
    work = Work()

    async def exits():
        raise interrupt

    other = loop.submit(work.run())
    await asyncio.to_thread(work.has_begun.wait)
    ended = loop.submit(exits())
    assert isinstance(await asyncio.to_thread(ended.exception, 20), interrupt)
    loop.call_soon(work.may_end.set)
    assert await asyncio.to_thread(other.result, 20) == 7


def test_the_thread_does_not_keep_its_owner():
    """A forgotten store can be collected."""

    class Owner:
        def __init__(self):
            self.loop = BackgroundLoop("test-owner")
            weakref.finalize(self, self.loop.abandon)

    owner = Owner()
    thread, seen = owner.loop._thread, weakref.ref(owner)
    del owner
    gc.collect()
    assert seen() is None
    thread.join(10)
    assert not thread.is_alive()


async def test_a_callers_loop_is_the_first_one_that_used_it():
    """Any other is refused, in the words of whoever made it."""
    callers = CallersLoop("this is another loop")
    assert callers.check() is asyncio.get_running_loop()

    async def work():
        return 7

    assert await callers.run(work()) == 7

    def elsewhere():
        with pytest.raises(InvalidRequestError, match="this is another loop"):
            asyncio.run(callers.run(work()))

    await asyncio.to_thread(elsewhere)
