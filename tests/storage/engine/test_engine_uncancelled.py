"""Waiting that a cancellation cannot cut short."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from agent_memory.storage._engine.handoff import result_of, run_uncancelled
from agent_memory.testing import Gate


async def test_the_result_is_the_works():
    """Nothing is added to a call that nobody cancels."""

    async def work():
        await asyncio.sleep(0)
        return 7

    assert await run_uncancelled(work()) == 7


async def test_an_error_is_the_works():
    """The original exception, not a copy."""
    error = LookupError("gone")

    async def work():
        raise error

    with pytest.raises(LookupError) as caught:
        await run_uncancelled(work())
    assert caught.value is error


@pytest.mark.parametrize("cancellations", [1, 4])
async def test_c22_a_cancelled_caller_leaves_only_when_the_work_has_ended(cancellations):
    """The cancellation is kept until nothing is in flight, and further ones change nothing."""
    gate, ended = Gate(), []

    async def work():
        await gate.passed()
        ended.append(True)

    caller = asyncio.ensure_future(run_uncancelled(work()))
    await gate.reached()
    for _ in range(cancellations):
        caller.cancel()
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caller.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]


async def test_a_cancellation_hides_the_error_of_the_work_and_nobody_complains():
    """The caller is gone: asyncio must not report the error as never retrieved."""
    gate, complaints = Gate(), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(1))

    async def work():
        await gate.passed()
        raise LookupError

    caller = asyncio.ensure_future(run_uncancelled(work()))
    await gate.reached()
    caller.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await caller
    del caller
    await asyncio.sleep(0)
    assert complaints == []


async def test_c22_a_cancellation_that_comes_with_the_end_is_not_lost():
    """Work that is done in the same moment still ends in the caller's cancellation."""
    gate = Gate()
    caller = asyncio.ensure_future(run_uncancelled(gate.passed()))
    await gate.reached()
    gate.open()
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_timeout_waits_for_the_work_too():
    """``asyncio.timeout`` cancels, and is told when the work has ended."""
    ended = []

    async def work():
        for _ in range(10):
            await asyncio.sleep(0)
        ended.append(True)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await run_uncancelled(work())
    assert ended == [True]


async def test_c22_the_result_of_a_thread_is_waited_for():
    """Work in another thread cannot be called back: the cancelled caller stays until its end."""
    may_end, started = threading.Event(), threading.Event()

    def work():
        started.set()
        may_end.wait()
        return 7

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        future = executor.submit(work)
        caller = asyncio.ensure_future(result_of(future))
        await asyncio.to_thread(started.wait)
        caller.cancel()
        await asyncio.sleep(0)
        caller.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not caller.done()
        assert not future.cancelled()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert future.result() == 7


async def test_the_outcome_of_a_thread_is_returned_or_raised():
    """As the work's own, also when it has ended before anybody waits."""
    done: concurrent.futures.Future[int] = concurrent.futures.Future()
    done.set_result(7)
    assert await result_of(done) == 7
    failed: concurrent.futures.Future[int] = concurrent.futures.Future()
    failed.set_exception(LookupError("gone"))
    with pytest.raises(LookupError, match="gone"):
        await result_of(failed)


def test_c22_the_end_of_a_loop_waits_for_the_thread():
    """``asyncio.run`` cancels every task when it ends, also the one inside `run_uncancelled`."""
    may_end, seen = threading.Event(), []
    executor = concurrent.futures.ThreadPoolExecutor(1)

    def work():
        may_end.wait()
        seen.append("work ended")

    async def save():
        await run_uncancelled(result_of(executor.submit(work)))

    async def main():
        task = asyncio.ensure_future(save())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        return task

    # In a thread of its own: in this one the tests watch for tasks that a loop's end cancels.
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        task = other.submit(asyncio.run, main()).result()
    seen.append("loop ended")
    executor.shutdown()
    assert task.cancelled()
    assert seen == ["work ended", "loop ended"]


def test_a_thread_that_ends_after_the_loop_is_closed_harms_nobody():
    """Waking a loop that is no more is no error."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(result_of(future))
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    future.set_result(1)  # ends the wait; what remains is the loop's own end
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(waiting)
    loop.close()
