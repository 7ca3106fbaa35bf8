"""Cases from the field: restarts, other writers, and many chats, over the embedded backends."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import StorageUnavailableError
from agent_memory.events import Evicted
from agent_memory.testing import (
    CountingChatStorage,
    FlakyChatStorage,
    GatedChatStorage,
    ScriptedSummarizer,
    blind_cut,
)
from rig import IDS, KEY, Rig, call, dialogue, names, result, system, user, violations


async def conserved(rig):
    view = await rig.view()
    assert violations(view, await rig.raw()) == []
    return view


# ------------------------------------------------------------------------- C57, C58


async def test_c57_the_next_process_shows_the_same_view_without_a_model(reopen):
    """The whole list is equal, and nobody is asked for a summary."""
    first = Rig(reopen())
    await first.active(7)
    await first.talk(9)
    shown = await first.view()
    await first.storage.aclose()
    second = Rig(reopen())
    assert await second.view() == shown
    assert second.calls == []
    assert [(type(e).__name__, e.restored) for e in second.events] == [("Activated", True)]
    assert await conserved(second) == shown


@pytest.mark.parametrize("length", [20, 600])
async def test_c57_the_next_process_reads_the_tail_alone(length, reopen):
    """What it reads does not grow with the chat."""
    first = Rig(reopen())
    await first.save(*dialogue(length))
    await first.view()
    second = Rig(CountingChatStorage(reopen()))
    await second.view()
    assert second.inner.entries_read <= 7 + 3
    assert second.inner.calls["read_session"] == 0


async def test_c57_what_was_saved_without_a_view_is_in_the_next_one(reopen):
    """The tail goes from the record to the newest message, however long it has become."""
    first = Rig(reopen())
    await first.active(7)
    await first.inner.save_chat_messages(*IDS, dialogue(2, start=8))
    assert names(await Rig(reopen()).view()) == ["S", "m6", "m7", "m8", "m9"]


async def test_c58_a_pinned_head_a_summary_and_a_restart(reopen):
    """Nothing is doubled and nothing is missing, pinned exchange included."""
    first = Rig(reopen())
    pinned = call("a", id="pin", pinned=True), result("a", id="pinned result")
    await first.save(system(id="s"), *dialogue(3), *pinned, *dialogue(8, start=4))
    shown = await first.view()
    assert names(shown) == ["s", "pin", "pinned result", "S", "m10", "m11"]
    second = Rig(reopen())
    assert await conserved(second) == shown
    for number in range(12, 24):
        await second.save(*dialogue(1, start=number))
    assert names(await conserved(second))[:4] == ["s", "pin", "pinned result", "S"]
    assert second.calls


async def test_c30_an_open_question_is_kept_across_a_restart(reopen):
    """It stands in the summary's place as the message it is, and stays until it is answered."""
    first = Rig(reopen(), summarizer=ScriptedSummarizer(cut=blind_cut))
    await first.save(*dialogue(4), user("why?", id="question"))
    for name in "ab":
        await first.save(call(name, id=f"call {name}"), result(name, id=f"result {name}"))
    shown = await first.view()
    assert names(shown) == ["S", "question", "call b", "result b"]
    second = Rig(reopen(), summarizer=ScriptedSummarizer(cut=blind_cut))
    assert names(await conserved(second)) == names(shown)
    assert [message.agent_id for message in await second.view()] == [None, *["agent"] * 3]
    for name in "cdef":
        await second.save(call(name, id=f"call {name}"), result(name, id=f"result {name}"))
    assert second.calls
    assert names(await conserved(second))[:2] == ["S", "question"]


async def test_pairs_of_bytes_and_odd_texts_survive_a_restart_in_the_view(reopen):
    """The summary and the head are as faithful as the log."""
    odd = [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}, {"text": "\ud800 \x00"}]
    rig = Rig(reopen(), summarizer=ScriptedSummarizer([lambda h, k: [user(odd), *h[-2:]]]))
    await rig.save(user(odd, id="pin", pinned=True), user(odd), user(odd), *dialogue(8))
    shown = await rig.view()
    assert await Rig(reopen()).view() == shown


# ------------------------------------------------------------------------- C59


async def test_c59_the_second_worker_sees_the_first_one_s_messages(reopen):
    """In its fetches, and between its own saves."""
    one, two = Rig(reopen()), Rig(reopen())
    await one.active(7)
    await two.view()
    await one.save(user(id="from one"))
    assert names(await two.view())[-1] == "from one"
    await one.save(user(id="one again"))
    await two.save(user(id="from two"))
    for rig in (one, two):
        assert names(await conserved(rig))[-3:] == ["from one", "one again", "from two"]


async def test_c59_when_both_summarize_one_record_wins_and_both_show_it(reopen):
    """The other worker adopts it: both views tell the same of the same messages."""
    one, two = Rig(reopen()), Rig(reopen())
    await one.active(7)
    await one.save(*dialogue(3, start=8))
    await two.view()
    gates = [rig.summarizer.hold() for rig in (one, two)]
    saving = asyncio.create_task(one.save(user(id="x")))
    await gates[0].reached()
    also = asyncio.create_task(two.save(user(id="y")))
    await gates[1].reached()
    for gate, task in zip(gates, (saving, also), strict=True):
        gate.open()
        await task
    views = [await conserved(rig) for rig in (one, two)]
    assert views[0] == views[1]
    assert two.events[-1].adopted
    assert len(await one.inner.summaries().list_summaries(KEY)) == 2


async def test_c59_a_worker_whose_summary_lost_goes_on_from_the_winner_s(reopen):
    """Its next summary replaces the record it adopted."""
    one, two = Rig(reopen()), Rig(reopen())
    await one.active(7)
    await two.view()
    for number in range(8, 40):
        await (one, two)[number % 2].save(*dialogue(1, start=number))
    records = await one.inner.summaries().list_summaries(KEY)
    assert [record.replaces for record in records[1:]] == [record.id for record in records[:-1]]
    assert len(records) > 3
    for rig in (one, two):
        await conserved(rig)


async def test_c39_deleted_text_does_not_come_back_in_another_worker(reopen):
    """A deletion and ten saves by the one: nothing of the old chat in the other's next view."""
    one, two = Rig(reopen()), Rig(reopen())
    await one.active(7)
    await two.view()
    await one.storage.delete_chat(*IDS)
    new = await one.save(*dialogue(10, start=50))
    view = await two.view()
    assert violations(view, new) == []
    await two.save(user(id="more"))
    await conserved(two)


# ------------------------------------------------------------------------- C62


@pytest.mark.parametrize(
    "count",
    [
        300,
        pytest.param(1_000, marks=pytest.mark.matrix),
        pytest.param(10_000, marks=pytest.mark.soak),
    ],
)
async def test_c62_thousands_of_chats_through_a_hundred_buffers(count):
    """Memory is bounded; an evicted chat comes back right without asking a model."""
    summarizer = ScriptedSummarizer(cut=lambda history, keep_last: (history[:-2], history[-2:]))
    rig = Rig(summarizer=summarizer, trigger_at=2, max_buffers=100)
    chats = [("user", "session", f"agent {number}") for number in range(count)]
    for ids in chats:
        await rig.save(*dialogue(5), ids=ids)
        await rig.view(ids=ids)
        assert rig.storage.buffered_chats <= 100
    assert rig.kinds().count("Evicted") == count - 100
    calls = len(summarizer.calls)
    for ids in chats[:: count // 10]:
        await rig.save(user(id="more"), ids=ids)
        view = await rig.view(ids=ids)
        assert names(view) == ["S", "m4", "m5", "more"]
        assert violations(view, await rig.raw(ids)) == []
    assert len(summarizer.calls) == calls
    assert len(rig.storage._buffers._by_key) == rig.storage.buffered_chats == 100


# ------------------------------------------------------------------------- C106


async def with_a_lost_answer(storage):
    """A worker that asks for no others' messages, one of whose saves was not answered."""
    flaky = FlakyChatStorage(storage)
    rig = Rig(GatedChatStorage(flaky), shared=False)
    await rig.active(7)
    flaky.fail("after")
    with pytest.raises(StorageUnavailableError):
        await rig.save(user(id="lost answer"))
    return rig


async def test_c106_a_read_that_fails_after_a_lost_answer_is_made_again(reopen, monkeypatch):
    """Nobody else would tell that the message is stored: the view stays stale until it is read."""
    rig = await with_a_lost_answer(reopen())

    async def fail(*_arguments, **_options):
        raise StorageUnavailableError("away")

    with monkeypatch.context() as broken:
        broken.setattr(rig.inner, "_read", fail)
        with pytest.raises(StorageUnavailableError):
            await rig.view()
    assert names(await rig.view())[-1] == "lost answer"
    await conserved(rig)


async def test_c106_a_read_cancelled_after_a_lost_answer_is_made_again(reopen):
    """A cancellation ends the read as an error does."""
    rig = await with_a_lost_answer(reopen())
    gate = rig.inner.hold("read")
    fetching = asyncio.create_task(rig.view())
    await gate.reached()
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert names(await rig.view())[-1] == "lost answer"
    await conserved(rig)


async def test_the_least_recently_used_buffer_is_evicted():
    """A chat that was used since stays held, though its buffer is older."""
    rig = Rig(max_buffers=2)
    chats = [("user", "session", name) for name in "abc"]
    for ids in chats[:2]:
        await rig.save(*dialogue(7), ids=ids)
        await rig.view(ids=ids)
    await rig.view(ids=chats[0])
    await rig.save(*dialogue(7), ids=chats[2])
    await rig.view(ids=chats[2])
    evicted = [event.key.agent_id for event in rig.events if isinstance(event, Evicted)]
    assert evicted == ["b"]
