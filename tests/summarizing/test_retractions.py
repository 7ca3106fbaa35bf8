"""What was retracted is in no view and in no summary that is shown, whoever looks, and when."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import InMemoryChatStorage, SqlChatStorage, SummarizingChatStorage
from agent_memory.log import visible
from agent_memory.testing import ScriptedSummarizer, blind_cut, witnessed
from rig import IDS, KEY, Rig, call, dialogue, names, result, system, user, violations


def told(view):
    """The raw messages that a view shows, or that its summaries were made of."""
    return [name for message in view for name in witnessed(message)]


def ids(first, last, *, without=()):
    return [f"m{number}" for number in range(first, last + 1) if number not in without]


def summarizing(storage, summarizer=None, **options):
    return SummarizingChatStorage(
        storage, summarizer or ScriptedSummarizer(), 4, 1, close_inner=False, **options
    )


async def summarized(inner, count=12, **options):
    """A store over `inner` with a chat that has been summarized, and its summarizer."""
    summarizer = ScriptedSummarizer()
    storage = summarizing(inner, summarizer, **options)
    await storage.save_chat_messages(*IDS, dialogue(count))
    await storage.fetch_chat(*IDS)
    assert summarizer.calls
    return storage, summarizer


async def test_a_retracted_tail_leaves_the_summary_as_it_is():
    """Nothing of it was summarized: the model is not asked again."""
    storage, summarizer = await summarized(InMemoryChatStorage())
    before = await storage.fetch_chat(*IDS)
    await storage.retract_newest(*IDS)
    assert await storage.fetch_chat(*IDS) == before[:-1]
    assert len(summarizer.calls) == 1
    assert len([message async for message in storage.iter_chat(*IDS)]) == 12


async def test_a_message_that_a_summary_stands_for_makes_a_new_one():
    """The old summary is void; the new one knows nothing of the message."""
    storage, summarizer = await summarized(InMemoryChatStorage())
    await storage.retract(*IDS, ["m3"])
    view = await storage.fetch_chat(*IDS)
    assert len(summarizer.calls) == 2
    assert told(view) == ids(1, 12, without=(3,))
    assert "m3" not in [message.id for message in summarizer.calls[-1].history]
    old, new = await storage.compaction_history(*IDS)
    assert new.replaces == old.id


async def test_a_chat_not_long_enough_without_its_summary_is_shown_raw():
    """What is left is under the trigger once most of it was retracted."""
    storage, summarizer = await summarized(InMemoryChatStorage())
    await storage.retract(*IDS, ids(1, 8))
    assert told(await storage.fetch_chat(*IDS)) == ids(9, 12)
    assert len(summarizer.calls) == 1


async def test_a_restart_needs_no_new_summary(tmp_path):
    """The record made after the retraction is known to leave the message out."""
    async with SqlChatStorage(f"sqlite:///{tmp_path}/chats.db") as inner:
        storage, _ = await summarized(inner)
        await storage.retract(*IDS, ["m3"])
        await storage.retract_newest(*IDS)
        view = await storage.fetch_chat(*IDS)
        again = ScriptedSummarizer()
        assert await summarizing(inner, again).fetch_chat(*IDS) == view
        assert told(view) == ids(1, 11, without=(3,))
        assert again.calls == []


async def test_a_restart_right_after_the_retraction_makes_the_new_summary():
    """Nothing in memory is needed to know that the record is void."""
    inner = InMemoryChatStorage()
    await summarized(inner)
    await inner.retract(*IDS, ["m3"])
    again = ScriptedSummarizer()
    assert told(await summarizing(inner, again).fetch_chat(*IDS)) == ids(1, 12, without=(3,))
    assert len(again.calls) == 1


async def test_what_another_worker_retracts_is_seen():
    """Its note is among what follows the buffer."""
    inner = InMemoryChatStorage()
    storage, _ = await summarized(inner, shared=True)
    await inner.retract(*IDS, ["m2", "m12"])
    assert told(await storage.fetch_chat(*IDS)) == ids(1, 11, without=(2,))


async def test_a_summary_under_way_does_not_bring_the_message_back():
    """It was made from the message: it is dropped, and the next one is made without."""
    summarizer = ScriptedSummarizer()
    storage = summarizing(InMemoryChatStorage(), summarizer, background=True)
    await storage.save_chat_messages(*IDS, dialogue(12))
    gate = summarizer.hold()
    await storage.fetch_chat(*IDS)
    await gate.reached()
    await storage.retract(*IDS, ["m3"])
    gate.open()
    assert "m3" not in told(await storage.fetch_chat(*IDS))
    await storage.aclose()
    again = summarizing(storage.inner)
    assert told(await again.fetch_chat(*IDS)) == ids(1, 12, without=(3,))


async def test_two_workers_agree_after_one_summarized_without_knowing():
    """The record of the one that had not seen the note is void for both."""
    inner = InMemoryChatStorage()
    one, _ = await summarized(inner, shared=False)
    two, _ = summarizing(inner, shared=False), None
    await two.fetch_chat(*IDS)
    await two.retract(*IDS, ["m3"])
    await one.compact_now(*IDS)
    await two.save_chat_messages(*IDS, dialogue(8, start=13))
    assert told(await two.fetch_chat(*IDS)) == ids(1, 20, without=(3,))
    await one.save_chat_messages(*IDS, dialogue(8, start=21))
    assert told(await one.fetch_chat(*IDS)) == ids(1, 28, without=(3,))
    assert told(await summarizing(inner).fetch_chat(*IDS)) == ids(1, 28, without=(3,))


async def test_a_pinned_message_can_be_retracted():
    """The head does not keep it."""
    storage = summarizing(InMemoryChatStorage())
    await storage.save_chat_messages(
        *IDS, [system(id="s"), user("pin", pinned=True, id="p"), *dialogue(12)]
    )
    assert {"s", "p"} <= set(told(await storage.fetch_chat(*IDS)))
    await storage.retract(*IDS, ["p", "s"])
    assert told(await storage.fetch_chat(*IDS)) == ids(1, 12)


async def test_a_cleared_chat_begins_anew():
    """No summary of what was cleared, and reading it again does not read it all."""
    storage, summarizer = await summarized(InMemoryChatStorage(), 200)
    await storage.clear(*IDS)
    assert await storage.fetch_chat(*IDS) == []
    await storage.save_chat_messages(*IDS, dialogue(3, start=201))
    assert told(await storage.fetch_chat(*IDS)) == ids(201, 203)
    again = summarizing(storage.inner)
    assert told(await again.fetch_chat(*IDS)) == ids(201, 203)
    assert again.buffered_chats == 0
    assert len(summarizer.calls) == 1
    assert len([message async for message in storage.iter_chat(*IDS)]) == 203


async def test_the_account_tells_what_was_retracted():
    """Auditors see the message and why no model does."""
    storage, _ = await summarized(InMemoryChatStorage())
    await storage.retract(*IDS, ["m3", "m12"])
    account = await storage.explain(*IDS)
    assert account.count("retracted") == 2
    assert account.count("covered") + account.count("verbatim") == 10


@pytest.mark.parametrize("every", [3, 5])
async def test_a_long_chat_with_retractions_stays_right(every):
    """Whatever is retracted, when: every message left is told once, in order, and no other."""
    storage = summarizing(InMemoryChatStorage())
    for number in range(1, 121):
        await storage.save_chat_messages(*IDS, dialogue(1, start=number))
        if number % every == 0:
            await storage.retract(*IDS, [f"m{number - every // 2}"])
        if number % 7 == 0:
            await storage.retract_newest(*IDS)
        entries = [entry async for entry in storage.iter_log(*IDS)]
        view = await storage.fetch_chat(*IDS)
        assert told(view) == [message.id for message in visible(entries)]
        assert len(view) <= 9


async def test_retractions_beside_saves_and_fetches():
    """At once from many tasks: in the end the view tells what the log does."""
    storage = summarizing(InMemoryChatStorage())

    async def work(number):
        await storage.save_chat_messages(*IDS, dialogue(1, start=number))
        await storage.fetch_chat(*IDS)
        if number % 3 == 0:
            await storage.retract_newest(*IDS)

    await asyncio.gather(*(work(number) for number in range(1, 91)))
    entries = [entry async for entry in storage.iter_log(*IDS)]
    assert told(await storage.fetch_chat(*IDS)) == [message.id for message in visible(entries)]
    assert len(visible(entries)) == 60


async def test_what_a_summary_tells_of_a_message_that_is_shown_as_well_is_void_too():
    """A blind cut put half an exchange into the summary; the other half kept it in the tail."""
    rig = Rig(summarizer=ScriptedSummarizer(cut=blind_cut))
    await rig.save(*dialogue(6), call("a", id="call"), result("a", id="result"), user(id="end"))
    assert names(await rig.view()) == ["S", "m5", "call", "result", "end"]
    await rig.storage.retract(*IDS, ["call"])
    view = await rig.view()
    assert violations(view, visible((await rig.inner._read(KEY)).entries)) == []
