"""Work shared between event loops: waiting, cancelling, loops that close or stop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from agent_memory.storage._engine.event_loops import SharedSemaphore, SharedTask, cancel, is_over

pytestmark = pytest.mark.leaves_things  # loops that end in the middle of things

GENEROUS = 60  # seconds, for what takes milliseconds


@pytest.fixture
def stopped():
    """A loop that is stopped in the middle of things, and neither closed nor run again."""
    loop = asyncio.new_event_loop()
    yield loop
    if loop.is_closed():
        return
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def elsewhere(work):
    """The result of some work in another loop, which must not hang."""
    return asyncio.run(asyncio.wait_for(work, GENEROUS))


async def begun():
    """A task that was begun and does not end by itself."""

    async def work(_shared):
        await asyncio.Event().wait()

    return SharedTask.start(work, when_cancelled=lambda _shared: None)


async def test_all_waiters_get_the_result():
    """In this loop, and after the end."""
    go_on = asyncio.Event()

    async def work(shared):
        await go_on.wait()
        shared.finish("done")

    shared = SharedTask.start(work, when_cancelled=lambda _shared: None)
    waiting = [asyncio.ensure_future(shared.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert shared.is_live
    go_on.set()
    assert await asyncio.gather(*waiting) == ["done"] * 3
    assert await shared.wait() == "done"
    assert not shared.is_live
    assert not shared.is_abandoned


async def test_the_first_result_counts():
    """A late one changes nothing."""
    shared = SharedTask()
    shared.finish("first")
    shared.finish("second")
    assert await shared.wait() == "first"


async def test_a_waiter_s_cancellation_ends_the_wait_alone():
    """The work goes on, and others get its result."""
    shared = SharedTask()
    one, other = (asyncio.ensure_future(shared.wait()) for _ in "12")
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    assert one.cancelled()
    assert shared.is_live
    shared.finish("done")
    assert await other == "done"


@pytest.mark.parametrize("rounds", [0, 3])
async def test_a_cancelled_task_ends_the_wait(rounds):
    """Also one that was cancelled before it began; the owner is called first."""
    cancelled = []

    async def work(_shared):
        await asyncio.Event().wait()

    shared = SharedTask.start(work, when_cancelled=cancelled.append)
    for _ in range(rounds):
        await asyncio.sleep(0)
    shared.cancel()
    assert await asyncio.wait_for(shared.wait(), GENEROUS) is None
    assert cancelled == [shared]


async def test_a_task_that_fails_wakes_its_waiters():
    """Nobody waits for work that is no more."""

    async def work(_shared):
        raise OSError("broken")

    shared = SharedTask.start(work, when_cancelled=lambda _shared: None)
    assert await asyncio.wait_for(shared.wait(), GENEROUS) is None
    with pytest.raises(OSError, match="broken"):
        await shared._task


def test_other_loops_wait_without_blocking_theirs():
    """The work goes on in a thread's loop; each of the others gets its result."""
    ready, release, found = threading.Event(), threading.Event(), []

    async def own():
        shared = SharedTask()
        found.append(shared)
        ready.set()
        await asyncio.to_thread(release.wait)
        shared.finish("done")

    thread = threading.Thread(target=asyncio.run, args=(own(),))
    thread.start()
    ready.wait(GENEROUS)

    async def wait():
        waiting = asyncio.ensure_future(found[0].wait())
        await asyncio.sleep(0)
        release.set()
        return await waiting

    assert elsewhere(wait()) == "done"
    thread.join(GENEROUS)


@pytest.mark.parametrize("close", [True, False])
def test_nobody_waits_for_a_loop_that_does_not_run(stopped, close):
    """Closed or stopped, the work counts as abandoned at once."""
    shared = stopped.run_until_complete(begun())
    if close:
        shared._task._log_destroy_pending = False
        stopped.close()
    assert shared.is_abandoned
    assert not shared.is_live
    assert is_over(shared._task)
    assert elsewhere(shared.wait()) is None
    shared.cancel()  # there is nothing to cancel


def test_a_task_of_a_closed_loop_is_not_cancelled(stopped):
    """Its loop would refuse the step that it takes."""
    task = stopped.create_task(asyncio.Event().wait())
    task._log_destroy_pending = False
    stopped.run_until_complete(asyncio.sleep(0))
    stopped.close()
    cancel(task)
    assert not task.done()


def test_a_loop_that_stops_under_its_waiters_is_given_up(stopped):
    """It tells nobody: they look themselves."""
    found, started = [], threading.Event()

    def run():
        found.append(stopped.run_until_complete(begun()))
        stopped.call_soon(started.set)
        stopped.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(GENEROUS)

    async def wait():
        waiting = asyncio.ensure_future(found[0].wait())
        await asyncio.sleep(0)
        stopped.call_soon_threadsafe(stopped.stop)
        return await waiting

    assert elsewhere(wait()) is None
    thread.join(GENEROUS)


def test_a_stopped_loop_that_runs_again_ends_the_work(stopped):
    """What it brings late is a result like any other; whoever waits decides whether it counts."""
    go_on = asyncio.Event()

    async def begin():
        async def work(shared):
            await go_on.wait()
            shared.finish("late")

        return SharedTask.start(work, when_cancelled=lambda _shared: None)

    async def resume():
        go_on.set()
        return await shared.wait()

    shared = stopped.run_until_complete(begin())
    assert shared.is_abandoned
    assert stopped.run_until_complete(resume()) == "late"
    assert not shared.is_abandoned


def test_a_closed_loop_is_not_kept_alive():
    """Work without a task of its own holds nothing of its loop."""
    loops = []

    async def begin():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        return SharedTask()

    shared = asyncio.run(begin())
    gc.collect()
    assert loops[0]() is None
    assert shared.is_abandoned


async def test_one_that_was_cancelled_while_it_waited_gives_its_place_up():
    """The next in the order gets the slot."""
    slots, order = SharedSemaphore(1), []

    async def work(name):
        async with slots.slot():
            order.append(name)
            await asyncio.sleep(0)

    async with slots.slot():
        tasks = [asyncio.create_task(work(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
    await asyncio.wait_for(asyncio.gather(*tasks[1:]), GENEROUS)
    assert order == ["b", "c"]


async def test_so_many_hold_a_slot_and_no_more():
    """The others come in their order."""
    slots, now, most, order = SharedSemaphore(2), 0, 0, []

    async def work(number):
        nonlocal now, most
        async with slots.slot():
            now += 1
            most = max(most, now)
            order.append(number)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(work(number) for number in range(20)))
    assert (most, order) == (2, [*range(20)])


def test_a_slot_that_a_stopped_loop_holds_is_given_to_others(stopped):
    """In the order they came; the stopped loop may go on later, and takes none by leaving."""
    slots, order = SharedSemaphore(1), []

    held = asyncio.Event()

    async def hold(gate):
        async with slots.slot():
            order.append("stopped")
            held.set()
            await gate.wait()

    async def begin(gate):
        task = asyncio.ensure_future(hold(gate))
        await held.wait()
        return task

    async def work(name):
        async with slots.slot():
            order.append(name)
            await asyncio.sleep(0)

    async def others():
        await asyncio.gather(*(work(name) for name in "abc"))

    gate = asyncio.Event()
    task = stopped.run_until_complete(begin(gate))
    elsewhere(others())
    assert order == ["stopped", "a", "b", "c"]
    gate.set()
    stopped.run_until_complete(task)
    elsewhere(others())
    assert order[4:] == ["a", "b", "c"]
