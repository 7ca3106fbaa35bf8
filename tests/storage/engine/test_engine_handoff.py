"""What threads answer to tasks that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from agent_memory.storage._engine.handoff import Handoff, answer_all


def in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


async def test_an_outcome_may_come_before_or_after_the_wait():
    """Nobody waits for what is there already, and who waits is woken."""
    early, late = Handoff(), Handoff()
    in_thread(early.set_result, 1)
    assert await early.wait() == 1
    waiting = asyncio.ensure_future(late.wait())
    await asyncio.sleep(0)
    in_thread(late.set_result, 2)
    assert await waiting == 2


async def test_a_system_call_wakes_another_loop_and_none_its_own(monkeypatch):
    """A loop that sleeps has to be woken; one that gives the outcome itself is awake."""
    loop, crossed = asyncio.get_running_loop(), []
    real = loop.call_soon_threadsafe

    def crossing(*arguments):
        crossed.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", crossing)
    own, others = [Handoff(), Handoff()], [Handoff(), Handoff()]
    waiting = [asyncio.ensure_future(reply.wait()) for reply in own]
    await asyncio.sleep(0)
    own[0].set_result(0)
    answer_all([(own[1], 1)])
    for _ in range(3):
        await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, True]
    assert crossed == []
    in_thread(answer_all, [(reply, 2) for reply in others])
    assert len(crossed) == 1
    assert [await reply.wait() for reply in others] == [2, 2]


async def test_who_is_interrupted_while_it_answers_may_answer_again(monkeypatch):
    """What was not handed over is no answer, and whoever comes later is woken too."""
    loop, crossed = asyncio.get_running_loop(), []
    real = loop.call_soon_threadsafe

    def crossing(*arguments):
        crossed.append(threading.current_thread())
        if len(crossed) == 1:
            raise MemoryError
        return real(*arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", crossing)
    handoff = Handoff()

    def answers():
        with contextlib.suppress(MemoryError):
            handoff.set_result(1)

    in_thread(answers)
    assert not handoff.is_answered
    in_thread(handoff.set_exception, ValueError("nobody knows"))
    assert handoff.is_answered
    assert len(crossed) == 2
    with pytest.raises(ValueError, match="nobody knows"):
        await handoff.wait()


async def test_a_failure_is_raised_and_holds_nothing():
    """The error is the thread's own, and does not live on in a cycle."""

    class Failed(Exception):  # noqa: N818 - a name for a test
        pass

    def fail(reply):
        error = Failed("no")
        in_thread(reply.set_exception, error)
        return weakref.ref(error)

    reply = Handoff()
    gc.disable()
    try:
        error = fail(reply)
        with contextlib.suppress(Failed):
            await reply.wait()
            pytest.fail("it gave a result")
        assert error() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("outcome", ["set_result", "set_exception"])
async def test_c22_cancellations_wait_for_the_outcome(outcome):
    """However often the task is cancelled, it leaves when the thread has answered."""
    reply = Handoff()
    waiting = asyncio.ensure_future(reply.wait())
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    in_thread(getattr(reply, outcome), ValueError("answer"))
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_answers_of_a_group_reach_every_loop():
    """Each task of each loop gets its own outcome."""
    mine = [Handoff() for _ in range(3)]
    made, answered = threading.Event(), threading.Event()
    others = []

    async def elsewhere():
        others.extend(Handoff() for _ in range(3))
        made.set()
        await asyncio.to_thread(answered.wait)
        return [await reply.wait() for reply in others]

    waiting = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(elsewhere())))
    await asyncio.to_thread(made.wait)
    in_thread(answer_all, zip([*mine, *others], range(6), strict=True))
    answered.set()
    assert await waiting == [3, 4, 5]
    assert [await reply.wait() for reply in mine] == [0, 1, 2]
