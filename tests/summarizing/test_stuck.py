"""Summarizers that do not end when they should."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_memory import InMemoryChatStorage, SummarizerError
from agent_memory.errors import SummarizerTimeoutError
from agent_memory.testing import Gate, ScriptedSummarizer
from rig import Rig, names, summary, violations

LIMIT = 60  # seconds: no machine needs so long, and the loop's clock is set forward


class Stubborn:
    """A step of a script that ignores being cancelled until its gate is opened."""

    def __init__(self):
        self.gate = Gate()
        self.ended = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, history, keep_last):
        self.begun.set()
        while not self.gate._open.is_set():
            try:
                await self.gate.passed()
            except asyncio.CancelledError:
                continue
        self.ended.set()
        return [summary("too late"), *history[-2:]]


@pytest.fixture
async def stubborn():
    step = Stubborn()
    yield step
    step.gate.open()
    if step.begun.is_set():
        await step.ended.wait()


async def failed(rig):
    """What the newest failure was."""
    assert rig.kinds()[-1] == "CompactionFailed"
    return rig.events[-1].error


async def test_c37_a_summarizer_that_never_returns_ends_at_its_time_out(loop_clock):
    """The save succeeds, the raw history is shown, and the chat goes on."""
    summarizer = ScriptedSummarizer()
    gate = summarizer.hold()
    rig = Rig(summarizer=summarizer, summarizer_timeout=LIMIT)
    view = await loop_clock.cut_short(rig.active(7), gate.reached(), LIMIT)
    assert names(view) == [f"m{n}" for n in range(1, 8)]
    assert isinstance(await failed(rig), SummarizerTimeoutError)
    await rig.talk(2)  # the wait after one failure
    assert names(await rig.view())[0] == "S"


async def test_c37_the_chat_works_while_a_summarizer_hangs():
    """Saves and fetches go on without limits of time."""
    summarizer = ScriptedSummarizer([None])
    rig = Rig(summarizer=summarizer, summarizer_timeout=None)
    await rig.active(7)
    await rig.talk(3)
    gate = summarizer.hold()
    saving = asyncio.create_task(rig.talk(1))
    await gate.reached()
    await rig.talk(20)
    assert names(await rig.view())[-1] == "m31"
    gate.open()
    await saving
    assert violations(await rig.view(), await rig.raw()) == []


async def test_a_call_that_ignores_its_cancellation_blocks_the_next_one(stubborn, loop_clock):
    """Two of them never run at once; when it ends at last, what it says is dropped."""
    summarizer = ScriptedSummarizer([stubborn])
    rig = Rig(summarizer=summarizer, summarizer_timeout=LIMIT)
    await loop_clock.cut_short(rig.active(7), stubborn.begun.wait(), LIMIT)
    await rig.talk(10)
    assert (len(rig.calls), summarizer.running) == (1, 1)
    stubborn.gate.open()
    await stubborn.ended.wait()
    await rig.talk(1)
    view = await rig.view()
    assert (names(view)[0], len(rig.calls), summarizer.most_running) == ("S", 2, 1)
    assert "too late" not in [message.content for message in view]


async def test_a_stuck_summarizer_is_not_called_again_because_a_fallback_stood_in(
    stubborn, loop_clock
):
    """The fallback's end does not make the first one's call end."""
    summarizer = ScriptedSummarizer([stubborn])
    fallback = ScriptedSummarizer()
    rig = Rig(summarizer=summarizer, fallback=fallback, summarizer_timeout=LIMIT)
    view = await loop_clock.cut_short(rig.active(7), stubborn.begun.wait(), LIMIT)
    assert names(view)[0] == "S"
    await rig.talk(20)
    assert (summarizer.most_running, len(summarizer.calls)) == (1, 1)
    stubborn.gate.open()
    await stubborn.ended.wait()
    await rig.talk(1)
    assert len(summarizer.calls) == 2


async def test_a_plain_summarizer_that_hangs_in_its_thread_blocks_the_next_one(loop_clock):
    """A thread cannot be cancelled: the chat goes on, and no second thread is started."""
    release, began, started = threading.Event(), threading.Event(), []

    def hang(history, keep_last):
        started.append(threading.current_thread())
        began.set()
        release.wait()
        return [summary(), *history[-2:]]

    rig = Rig(summarizer=hang, summarizer_timeout=LIMIT)
    await loop_clock.cut_short(rig.active(7), asyncio.to_thread(began.wait), LIMIT)
    await rig.talk(10)
    assert len(started) == 1
    release.set()
    await asyncio.to_thread(started[0].join)
    await rig.talk(1)
    assert (names(await rig.view())[0], len(started)) == ("S", 2)


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, TimeoutError, KeyError])
async def test_c35_a_plain_summarizer_may_raise_anything(error):
    """It is a failure like any other, at once."""

    def broken(history, keep_last):
        raise error

    rig = Rig(summarizer=broken, summarizer_timeout=None)
    await rig.active(7)
    assert isinstance(await failed(rig), SummarizerError)


@pytest.mark.parametrize("error", [asyncio.CancelledError, TimeoutError, ValueError("no")])
async def test_c35_an_async_summarizer_may_raise_anything(error):
    """Being cancelled from within, too, does not leave the storage."""
    rig = Rig(summarizer=ScriptedSummarizer([error]))
    assert len(await rig.active(7)) == 7
    assert isinstance(await failed(rig), SummarizerError)


async def test_a_summarizer_s_errors_are_not_mistaken_for_the_store_s():
    """The save that waited for it succeeds whatever is raised."""
    rig = Rig(summarizer=ScriptedSummarizer([None, OSError("disk"), MemoryError()]))
    await rig.active(7)
    await rig.talk(12)
    assert violations(await rig.view(), await rig.raw()) == []
    assert rig.kinds().count("CompactionFailed") == 2


async def test_closing_waits_for_a_summary_under_way():
    """What was begun is finished before the store inside is closed."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, close_inner=False)
    await rig.active(7)
    await rig.talk(3)
    gate = rig.summarizer.hold()
    saving = asyncio.create_task(rig.talk(1))
    await gate.reached()
    closing = asyncio.create_task(rig.storage.aclose())
    gate.open()
    await closing
    await saving
    assert len(await inner.summaries().list_summaries(rig.events[0].key)) == 2


async def test_closing_gives_a_hanging_summary_up():
    """After the time it has to drain; nothing is left running."""
    rig = Rig(summarizer_timeout=None, drain_timeout=0.01)
    await rig.active(7)
    await rig.talk(3)
    gate = rig.summarizer.hold()
    saving = asyncio.create_task(rig.talk(1))
    await gate.reached()
    await rig.storage.aclose()
    await saving
    assert rig.summarizer.running == 0
