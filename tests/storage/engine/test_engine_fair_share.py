"""Long work for many chats leaves the loop room between."""

from __future__ import annotations

import asyncio
import gc
import weakref

from agent_memory import InMemoryChatStorage, SummarizingChatStorage
from agent_memory.storage._engine.event_loops import AT_ONCE, FairShare, take_turn
from agent_memory.testing import ScriptedSummarizer
from rig import dialogue


async def rounds_of(tasks):
    """Count the loop's rounds until all tasks are done."""
    rounds = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds += 1
    return rounds


async def test_few_do_not_wait():
    """A turn that is free is taken without leaving the loop's round."""
    share, happened = FairShare(), []
    asyncio.get_running_loop().call_soon(happened.append, "next round")
    for _ in range(AT_ONCE):
        await share.turn()
    assert happened == []
    await share.turn()
    assert happened == ["next round"]


async def test_many_take_turns_in_the_order_they_came():
    """So many in each round of the loop, and nobody is forgotten."""
    share, done = FairShare(), []

    async def work(number):
        await share.turn()
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(10 * AT_ONCE)]
    sizes = []
    while len(done) < len(tasks):
        before = len(done)
        await asyncio.sleep(0)
        sizes.append(len(done) - before)
    assert done == [*range(10 * AT_ONCE)]
    assert max(sizes) <= AT_ONCE


async def test_who_is_cancelled_takes_no_turn_from_others():
    """Waiting or just called, it leaves; all others come through."""
    share, done = FairShare(), []

    async def work(number):
        await share.turn()
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(30)]
    for number in (2, 7, 8, 9, 10, 11, 29):
        await asyncio.sleep(0)
        tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = {number for number, task in enumerate(tasks) if task.cancelled()}
    assert cancelled <= {2, 7, 8, 9, 10, 11, 29}
    assert sorted(done) == sorted(set(range(30)) - cancelled)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await share.turn()


def test_each_loop_has_a_pace_of_its_own():
    """One that ended in the middle does not hold up the next."""

    async def some():
        waiting = [asyncio.ensure_future(take_turn()) for _ in range(20)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()

    for _ in range(3):
        asyncio.run(some())
    asyncio.run(asyncio.wait_for(take_turn(), 60))


def test_a_loop_that_was_closed_while_tasks_waited_is_forgotten():
    """When the next loop's first turn is taken."""
    loop = asyncio.new_event_loop()

    async def wait():
        waiting = [asyncio.ensure_future(take_turn()) for _ in range(20)]
        await asyncio.sleep(0)
        return waiting

    waiting = loop.run_until_complete(wait())
    loop.close()
    gone = weakref.ref(loop)
    for task in waiting:
        task._log_destroy_pending = False
    del loop, waiting, task
    asyncio.run(take_turn())
    gc.collect()
    assert gone() is None


async def test_many_chats_that_are_summarized_leave_the_loop_room():
    """Their views are made a few in a round, not all in one."""
    async with SummarizingChatStorage(
        InMemoryChatStorage(), ScriptedSummarizer(), 3, 1
    ) as storage:
        chats = [("user", "session", f"agent {number}") for number in range(100)]
        for ids in chats:
            await storage.save_chat_messages(*ids, dialogue(10))
        tasks = [asyncio.create_task(storage.fetch_chat(*ids)) for ids in chats]
        assert await rounds_of(tasks) >= len(chats) / AT_ONCE
        for task in tasks:
            assert len(await task) < 10
