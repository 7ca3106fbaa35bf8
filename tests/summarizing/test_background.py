"""Compactions behind the saves: nothing waits for a model, and nothing grows for ever."""

import asyncio
import logging

import pytest

from agent_memory import SummarizingChatStorage
from agent_memory.events import Compacted, CompactionFailed
from agent_memory.testing import ScriptedSummarizer, witnessed
from rig import IDS, KEY, Rig, dialogue


async def active(**options):
    """A rig whose chat is activated and one message away from its next compaction."""
    rig = Rig(background=True, **options)
    await rig.save(*dialogue(7))
    await rig.view()
    await drained(rig)
    await rig.save(*dialogue(3, start=8))
    return rig


async def drained(rig):
    """Wait for the compactions under way."""
    for task in rig.storage._buffers.tasks:
        await task.wait()


async def test_a_save_returns_while_its_summary_is_made():
    """The message is durable; the model may take its time."""
    rig = await active()
    gate = rig.summarizer.hold()
    await rig.save(*dialogue(1, start=11))
    await gate.reached()
    assert [message.id for message in await rig.view()][-1] == "m11"
    gate.open()
    await drained(rig)
    assert [type(event) for event in rig.events].count(Compacted) == 2


async def test_a_cold_fetch_does_not_wait_either():
    """The first view of a long chat is raw, and the summary comes behind it."""
    rig = Rig(background=True)
    await rig.save(*dialogue(8))
    gate = rig.summarizer.hold()
    assert [message.id for message in await rig.view()] == [f"m{n}" for n in range(1, 9)]
    await gate.reached()
    gate.open()
    await drained(rig)
    assert len(await rig.view()) == 3


async def test_a_view_past_the_hard_limit_waits_in_the_foreground():
    """A slow model cannot let the view grow for ever."""
    rig = await active(hard_limit=4)
    gate = rig.summarizer.hold()
    await rig.save(*dialogue(1, start=11))
    await gate.reached()
    saving = asyncio.create_task(rig.save(*dialogue(4, start=12)))
    while (await rig.raw())[-1].id != "m15":  # noqa: ASYNC110  the store has no event for it
        await asyncio.sleep(0)
    done, _ = await asyncio.wait({saving}, timeout=0)
    assert done == set()
    gate.open()
    await saving
    assert len(await rig.view()) < 9


async def test_so_many_summarizers_work_at_once_and_no_more():
    """A thousand chats over the trigger do not become a thousand requests."""
    summarizer = ScriptedSummarizer()
    rig = Rig(summarizer=summarizer, background=True, max_concurrent_summaries=2)
    gates = [summarizer.hold() for _ in range(5)]
    for number in range(5):
        ids = ("user", "session", f"agent{number}")
        await rig.save(*dialogue(7), ids=ids)
        await rig.view(ids=ids)
    await gates[0].reached()
    await gates[1].reached()
    assert (summarizer.running, len(summarizer.calls)) == (2, 2)
    for gate in gates:
        gate.open()
    await drained(rig)
    assert (summarizer.most_running, len(summarizer.calls)) == (2, 5)


async def test_closing_waits_for_what_is_under_way():
    """A summary that was paid for is kept."""
    rig = await active()
    gate = rig.summarizer.hold()
    await rig.save(*dialogue(1, start=11))
    await gate.reached()
    store = rig.inner.summaries()
    closing = asyncio.create_task(rig.storage._drain())
    gate.open()
    await closing
    assert len(await store.list_summaries(KEY)) == 2


async def test_closing_gives_up_after_the_drain_timeout_and_says_what_it_left(caplog):
    """A hung model does not keep a process from ending."""
    rig = await active(drain_timeout=0.01)
    gate = rig.summarizer.hold()
    await rig.save(*dialogue(1, start=11))
    await gate.reached()
    with caplog.at_level(logging.WARNING, "agent_memory"):
        await rig.storage.aclose()
    assert "1 of 1 compactions unfinished" in caplog.text
    for _ in range(100):  # it ends within a few turns of the loop
        await asyncio.sleep(0)
    assert rig.summarizer.running == 0


async def test_a_failure_behind_a_save_is_told_and_never_raised():
    """Even a strict wrapper has nobody to raise it to: the save has returned."""
    rig = await active(on_summarizer_error="raise")
    rig.summarizer.then(RuntimeError("the model is down"))
    await rig.save(*dialogue(1, start=11))
    await drained(rig)
    failed = [event for event in rig.events if isinstance(event, CompactionFailed)]
    assert len(failed) == 1
    assert "the model is down" in str(failed[0].error)
    assert [message.id for message in await rig.raw()][-1] == "m11"


async def test_everything_is_covered_or_shown_with_saves_faster_than_summaries():
    """Saves that overtake a summary find their messages after it, in order."""
    rig = await active()
    gate = rig.summarizer.hold()
    await rig.save(*dialogue(1, start=11))
    await gate.reached()
    for number in range(12, 20):
        await rig.save(*dialogue(1, start=number))
    gate.open()
    await drained(rig)
    view = await rig.view()
    assert witnessed(view[0]) + [message.id for message in view[1:]] == [
        message.id for message in await rig.raw()
    ]


@pytest.mark.leaves_things  # asyncio.run itself cancels the tasks
def test_a_loop_that_ends_under_a_background_summary_leaves_the_chat_usable():
    """``asyncio.run`` cancels what goes on behind; another loop takes it up again."""
    summarizer = ScriptedSummarizer()
    rig = Rig(summarizer=summarizer, background=True)

    async def first():
        await rig.save(*dialogue(7))
        gate = summarizer.hold()
        await rig.view()
        await gate.reached()

    async def second():
        await rig.save(*dialogue(1, start=8))
        await drained(rig)
        return await rig.view()

    asyncio.run(first())
    view = asyncio.run(second())
    assert [message.id for message in view[1:]] == ["m7", "m8"]
    assert witnessed(view[0]) == [f"m{number}" for number in range(1, 7)]


def test_the_storage_is_made_with_background_as_a_keyword():
    """One line turns it on."""
    storage = SummarizingChatStorage(Rig().inner, ScriptedSummarizer(), background=True)
    assert storage.buffered_chats == 0
    assert IDS == ("user", "session", "agent")
