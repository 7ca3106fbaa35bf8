"""What happens while something else is under way: gates, not clocks, decide the order."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import InMemoryChatStorage, StorageUnavailableError
from agent_memory.summarizing.buffers import Buffer
from agent_memory.testing import FlakyChatStorage, GatedChatStorage, ScriptedSummarizer
from racing import begin, conserved, full, summarizing
from rig import IDS, Rig, call, dialogue, names, result, texts, user

OTHER = ("user", "session", "other")


@pytest.fixture
async def rig():
    rig = Rig(GatedChatStorage(InMemoryChatStorage()))
    async with rig.storage:
        yield rig


# --------------------------------------------------------------------- saves and fetches


@pytest.mark.parametrize("count", [1, 50])
async def test_c38_messages_saved_during_a_summary_follow_it_in_order(rig, count):
    """They are shown at once, and after the summary; it replaces only what it was made from."""
    saving, gate = await summarizing(rig)
    await rig.talk(count)
    during = await conserved(rig)
    assert names(during)[-count:] == [f"m{11 + n}" for n in range(1, count + 1)]
    gate.open()
    await saving
    after = await conserved(rig)
    assert names(after) == ["S", *(f"m{n}" for n in range(10, 12 + count))]
    assert rig.summarizer.most_running == 1


async def test_fetches_do_not_wait_for_a_summary_under_way(rig):
    """Readers get the old view while a new summary is being made."""
    saving, gate = await summarizing(rig)
    assert names(await rig.view())[-1] == "m11"
    assert not saving.done()
    gate.open()
    await saving


async def test_a_view_that_another_thread_drops_meanwhile_fails_no_save(rig, monkeypatch):
    """The message is stored, and the next fetch reads the log."""
    await rig.save(*dialogue(11))
    await rig.view()

    def dropped(buffer):
        buffer.reset()
        return True

    with monkeypatch.context() as patch:
        patch.setattr(Buffer, "is_current", property(dropped))
        await rig.save(user("later", id="later"))
    assert names(await rig.view())[-1] == "later"


async def test_c40_ten_cold_fetches_are_one_call(rig):
    """They wait for it together and see the same."""
    await rig.save(*dialogue(9))
    gate = rig.summarizer.hold()
    fetches = [begin(rig.view()) for _ in range(10)]
    await gate.reached()
    gate.open()
    views = await asyncio.gather(*fetches)
    assert {tuple(names(view)) for view in views} == {("S", "m8", "m9")}
    assert len(rig.calls) == 1


async def test_c40_ten_saves_over_the_threshold_are_one_call(rig):
    """Only the first waits for the summary; the others return while it is made."""
    await full(rig)
    gate = rig.summarizer.hold()
    first, *others = [begin(rig.save(message)) for message in dialogue(10, start=11)]
    await gate.reached()
    await asyncio.gather(*others)
    assert not first.done()
    gate.open()
    await first
    assert len(rig.calls) == 2
    assert names(await conserved(rig)).count("S") == 1


async def test_a_cancelled_first_fetch_does_not_end_the_summary(rig):
    """The compaction is a task of its own; the next fetch shares it."""
    await rig.save(*dialogue(9))
    gate = rig.summarizer.hold()
    first = begin(rig.view())
    await gate.reached()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = begin(rig.view())
    gate.open()
    assert names(await second) == ["S", "m8", "m9"]
    assert len(rig.calls) == 1


async def test_a_save_cancelled_while_it_waits_for_a_summary_is_stored(rig):
    """The message is in the log, and the summary is made all the same."""
    saving, gate = await summarizing(rig)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    gate.open()
    await rig.talk(1)
    view = await conserved(rig)
    assert "m11" in names(await rig.raw())
    assert (names(view)[0], len(rig.calls)) == ("S", 2)


async def test_an_exchange_that_opens_before_the_snapshot_stays_whole():
    """A call saved between the decision to summarize and its beginning is not cut off."""
    gate = asyncio.Event()

    class Between(InMemoryChatStorage):
        armed = False

        async def _append(self, key, entries):
            if self.armed and entries[0].id == "call":
                await gate.wait()
            return await super()._append(key, entries)

        async def _after_append(self, key, stored):
            if self.armed and stored.entries[0].id == "m11":
                gate.set()

    rig = Rig(Between(), summarizer=ScriptedSummarizer([None, lambda h, k: [user("all of it")]]))
    await full(rig)
    rig.inner.armed = True
    await asyncio.gather(rig.save(call("a", id="call")), rig.talk(1))
    await rig.save(result("a", id="result"))
    assert names(await rig.view())[-2:] == ["call", "result"]


# --------------------------------------------------------------------- saves that fail


async def test_a_lost_answer_loses_nothing():
    """The message was stored although the save failed: the next view shows it."""
    rig = Rig(FlakyChatStorage(InMemoryChatStorage()))
    await rig.active(7)
    rig.inner.fail("after")
    with pytest.raises(StorageUnavailableError):
        await rig.talk(1)
    assert names(await conserved(rig)) == ["S", "m6", "m7", "m8"]


async def test_a_save_after_a_lost_answer_closes_the_gap():
    """Its position tells that something lies between."""
    rig = Rig(FlakyChatStorage(InMemoryChatStorage()))
    await rig.active(7)
    rig.inner.fail("after")
    with pytest.raises(StorageUnavailableError):
        await rig.talk(1)
    await rig.talk(1)
    assert names(await conserved(rig)) == ["S", "m6", "m7", "m8", "m9"]


async def test_an_answer_lost_during_a_summary_loses_nothing():
    """The summary is installed; what was stored meanwhile is read and follows it."""
    rig = Rig(FlakyChatStorage(InMemoryChatStorage()))
    saving, gate = await summarizing(rig)
    rig.inner.fail("after")
    with pytest.raises(StorageUnavailableError):
        await rig.talk(1)
    gate.open()
    await saving
    assert names(await conserved(rig)) == ["S", "m10", "m11", "m12"]


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_c22_a_cancelled_save_leaves_a_right_view(rig, moment):
    """It is stored when the cancellation leaves, and shown exactly once."""
    await rig.active(7)
    gate = rig.inner.hold("append", moment)
    saving = begin(rig.talk(1))
    await gate.reached()
    saving.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert names(await rig.raw())[-1] == "m8"
    assert names(await conserved(rig)) == ["S", "m6", "m7", "m8"]


async def test_saves_whose_answers_cross_are_shown_in_the_log_s_order(rig):
    """The later one's answer comes first; the view waits for the hole to be filled."""
    await rig.active(7)
    gate = rig.inner.hold("append", "after")
    first = begin(rig.talk(1))
    await gate.reached()
    await rig.talk(1)
    assert names(await conserved(rig))[-2:] == ["m8", "m9"]
    gate.open()
    await first
    assert names(await conserved(rig)) == ["S", "m6", "m7", "m8", "m9"]


async def test_another_writer_s_messages_between_ours_are_read():
    """A gap in the positions is seen even by a storage that takes itself for alone."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, shared=False)
    await rig.active(7)
    await inner.save_chat_messages(*IDS, [user("between", id="x")])
    await rig.talk(1)
    assert names(await conserved(rig)) == ["S", "m6", "m7", "x", "m8"]


async def test_another_writer_s_messages_during_a_summary_follow_it():
    """The gap lies behind the prefix that the summary replaces."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, shared=False)
    saving, gate = await summarizing(rig)
    await inner.save_chat_messages(*IDS, [user("between", id="x")])
    await rig.talk(1)
    gate.open()
    await saving
    assert names(await conserved(rig)) == ["S", "m10", "m11", "x", "m12"]


# --------------------------------------------------------------------- eviction


async def test_a_chat_is_not_evicted_while_it_is_summarized():
    """Its buffer gives way when the summary is in; nothing is lost or doubled."""
    rig = Rig(GatedChatStorage(InMemoryChatStorage()), max_buffers=1)
    saving, gate = await summarizing(rig)
    await rig.active(7, ids=OTHER)
    assert rig.storage.buffered_chats == 2
    gate.open()
    await saving
    assert rig.storage.buffered_chats == 1
    assert texts(await conserved(rig))[1:] == ["say 10", "say 11"]
    await conserved(rig, OTHER)
    assert "Evicted" in rig.kinds()


async def test_a_save_to_an_evicted_chat_is_seen_when_it_comes_back(rig):
    """Nothing is held of it; the record and the log give the view."""
    rig = Rig(rig.inner, max_buffers=1)
    await rig.active(7)
    await rig.active(7, ids=OTHER)
    await rig.save(user("more", id="more"))
    calls = len(rig.calls)
    assert names(await conserved(rig)) == ["S", "m6", "m7", "more"]
    assert len(rig.calls) == calls
