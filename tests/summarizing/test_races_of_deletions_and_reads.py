"""Deletions, trims and reads while something else is under way: gates decide the order."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import InMemoryChatStorage, StorageUnavailableError
from agent_memory.testing import CountingChatStorage, GatedChatStorage
from misbehaving import FaultyStorage
from racing import begin, conserved, full, summarizing
from rig import IDS, KEY, Rig, dialogue, names, violations


@pytest.fixture
async def rig():
    rig = Rig(GatedChatStorage(InMemoryChatStorage()))
    async with rig.storage:
        yield rig


# --------------------------------------------------------------------- deletions


async def test_c39_a_chat_deleted_during_its_summary_stays_deleted(rig):
    """The result is dropped, no record is written, and nothing of it comes back."""
    saving, gate = await summarizing(rig)
    await rig.storage.delete_chat(*IDS)
    gate.open()
    await saving
    assert await rig.view() == []
    assert await rig.inner.summaries().list_summaries(KEY) == []
    assert rig.events[-1].reason == "superseded"


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_c39_a_chat_deleted_while_its_record_is_written_stays_deleted(rig, moment):
    """Whether the store has the record already or refuses it: no deleted text is left."""
    await full(rig)
    gate = rig.inner.hold("save_summary", moment)
    saving = begin(rig.talk(1))
    await gate.reached()
    await rig.storage.delete_chat(*IDS)
    gate.open()
    await saving
    new = await rig.save(*dialogue(2, start=50))
    assert await rig.view() == new
    assert await rig.inner.summaries().list_summaries(KEY) == []


async def test_a_chat_trimmed_during_its_summary_shows_what_is_left_raw(rig):
    """A trim is a deletion: the summary covers erased text and must not appear."""
    saving, gate = await summarizing(rig)
    await rig.storage.trim_chat(*IDS, 2)
    gate.open()
    await saving
    assert names(await rig.view()) == ["m10", "m11"]


async def test_c39_another_worker_deletes_and_saves_while_a_summary_is_made():
    """The first worker's next view holds none of the deleted text."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, shared=True)
    saving, gate = await summarizing(rig)
    await inner.delete_chat(*IDS)
    new = await inner.save_chat_messages(*IDS, dialogue(10, start=50))
    gate.open()
    await saving
    assert violations(await rig.view(), new) == []
    (record,) = await inner.summaries().list_summaries(KEY) or [None]
    assert record is None or record.floor == 11


@pytest.mark.parametrize("keep", [1, 2, 5])
async def test_what_another_worker_trims_is_not_shown(keep):
    """The newest message is the same as before; the floor alone tells."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, shared=True)
    await rig.active(7)
    await inner.trim_chat(*IDS, keep)
    assert names(await rig.view()) == [f"m{n}" for n in range(8 - keep, 8)]


async def test_what_another_worker_trims_during_a_summary_is_not_shown():
    """The summary was made of what is gone: it is dropped, whoever asks for the view first."""
    inner = InMemoryChatStorage()
    rig = Rig(inner, shared=True)
    saving, gate = await summarizing(rig)
    await inner.trim_chat(*IDS, 2)
    assert names(await rig.view()) == ["m10", "m11"]
    gate.open()
    await saving
    assert names(await rig.view()) == ["m10", "m11"]
    assert await inner.summaries().list_summaries(KEY) == []


async def test_a_deletion_whose_answer_was_lost_leaves_nothing_in_the_view():
    """It may have been done: the view is made anew from what the log holds."""
    rig = Rig(FaultyStorage(InMemoryChatStorage(), "process"))
    await rig.active(7)
    rig.inner.faults.plan("forget", "fail after")
    with pytest.raises(StorageUnavailableError):
        await rig.storage.delete_chat(*IDS)
    assert await rig.view() == []


async def test_a_chat_deleted_while_it_is_loaded_stays_deleted(rig):
    """The read began before the deletion; what it brings is not shown."""
    await rig.save(*dialogue(9))
    rig.inner.hold("read", "after").open()  # the look at its length
    gate = rig.inner.hold("read", "after")
    fetching = begin(rig.view())
    await gate.reached()
    await rig.storage.delete_chat(*IDS)
    gate.open()
    assert await fetching == []
    assert await rig.view() == []


async def test_a_chat_deleted_while_its_view_is_made_anew_stays_deleted(rig):
    """No compaction follows that would notice: what was read before is not taken over."""
    await rig.active(7)
    await rig.inner.trim_chat(*IDS, 3)
    await rig.talk(1)  # its answer tells of another floor: the view is void
    gate = rig.inner.hold("read", "after")
    fetching = begin(rig.view())
    await gate.reached()
    await rig.storage.delete_chat(*IDS)
    gate.open()
    assert await fetching == []
    assert await rig.view() == []


async def test_a_chat_deleted_while_a_view_catches_up_stays_deleted():
    """So it is with the read of what other writers stored."""
    rig = Rig(GatedChatStorage(InMemoryChatStorage()), shared=True)
    await rig.active(7)
    gate = rig.inner.hold("read", "after")
    fetching = begin(rig.view())
    await gate.reached()
    await rig.storage.delete_chat(*IDS)
    gate.open()
    assert await fetching == []
    assert await rig.view() == []


# --------------------------------------------------------------------- reads under way


async def test_a_message_saved_while_the_chat_is_loaded_is_shown(rig):
    """The load did not see it; the view does."""
    await rig.save(*dialogue(9))
    rig.inner.hold("read", "after").open()
    gate = rig.inner.hold("read", "after")
    fetching = begin(rig.view())
    await gate.reached()
    await rig.save(*dialogue(1, start=10))
    gate.open()
    assert names(await fetching)[-1] == "m10"
    await conserved(rig)


async def test_a_message_saved_while_a_view_catches_up_is_shown_once():
    """Read and save bring the same messages in either order."""
    rig = Rig(GatedChatStorage(InMemoryChatStorage()), shared=True)
    await rig.active(7)
    await rig.inner.save_chat_messages(*IDS, dialogue(1, start=8))  # another writer's
    gate = rig.inner.hold("read", "after")
    fetching = begin(rig.view())
    await gate.reached()
    await rig.save(*dialogue(1, start=9))
    gate.open()
    assert names(await fetching) == ["S", "m6", "m7", "m8", "m9"]
    await conserved(rig)


async def test_those_who_wait_for_a_read_that_is_cancelled_read_themselves(rig):
    """One fetch's cancellation is not the other's."""
    await rig.save(*dialogue(9))
    rig.inner.hold("read", "after").open()
    gate = rig.inner.hold("read", "after")
    first, second = begin(rig.view()), begin(rig.view())
    await gate.reached()
    first.cancel()
    gate.open()
    await asyncio.wait([first])
    assert names(await second) == ["S", "m8", "m9"]


# ------------------------------------------------------------- a look that serves as the read


async def restarted(inner):
    """A worker that has never seen the chat, whose newest messages follow a record."""
    before = Rig(inner)
    await before.active(7)
    await before.talk(2)
    return Rig(inner)


async def test_a_restart_reads_the_end_of_the_log_once():
    """What was looked at to tell how long the chat is serves the view as well."""
    inner = CountingChatStorage(InMemoryChatStorage())
    rig = await restarted(inner)
    inner.reset()
    assert names(await rig.view()) == ["S", "m6", "m7", "m8", "m9"]
    assert inner.calls["read"] == 1
    assert inner.entries_read == 7


HELD = [("read", "after"), ("load_summary", "before"), ("load_summary", "after")]


@pytest.mark.parametrize(("call", "moment"), HELD)
async def test_a_message_saved_during_a_restart_is_shown(call, moment):
    """Whether the end of the log was being looked at or the record was being read."""
    rig = await restarted(GatedChatStorage(InMemoryChatStorage()))
    gate = rig.inner.hold(call, moment)
    fetching = begin(rig.view())
    await gate.reached()
    await rig.save(*dialogue(1, start=10))
    gate.open()
    assert names(await fetching)[-2:] == ["m9", "m10"]
    await conserved(rig)


@pytest.mark.parametrize("keep", [0, 2])
@pytest.mark.parametrize(("call", "moment"), HELD)
async def test_what_is_trimmed_during_a_restart_is_not_shown(call, moment, keep):
    """Neither what was seen before nor the record of it."""
    rig = await restarted(GatedChatStorage(InMemoryChatStorage()))
    gate = rig.inner.hold(call, moment)
    fetching = begin(rig.view())
    await gate.reached()
    await rig.storage.trim_chat(*IDS, keep)
    gate.open()
    assert names(await fetching) == ["m8", "m9"][2 - keep :]
    assert names(await rig.view()) == ["m8", "m9"][2 - keep :]


@pytest.mark.parametrize(("call", "moment"), HELD)
async def test_a_save_whose_answer_was_lost_during_a_restart_is_shown(call, moment, monkeypatch):
    """It is stored, but nobody was told: the log is asked."""
    gated = GatedChatStorage(InMemoryChatStorage())
    rig = await restarted(gated)
    append = gated._append

    async def lose(key, entries):
        await append(key, entries)
        raise ConnectionResetError

    gate = gated.hold(call, moment)
    fetching = begin(rig.view())
    await gate.reached()
    monkeypatch.setattr(gated, "_append", lose)
    with pytest.raises(ConnectionResetError):
        await rig.save(*dialogue(1, start=10))
    gate.open()
    await fetching
    assert names(await rig.view())[-2:] == ["m9", "m10"]


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_record_that_another_worker_makes_during_a_restart_fits(moment):
    """It stands for messages that were not yet there at the look."""
    gated = GatedChatStorage(InMemoryChatStorage())
    await restarted(gated)
    rig, other = Rig(gated, shared=True), Rig(gated.inner)
    gate = gated.hold("load_summary", moment)
    fetching = begin(rig.view())
    await gate.reached()
    for number in range(10, 30):
        await other.save(*dialogue(1, start=number))
        await other.view()
    gate.open()
    await fetching
    await conserved(rig)
    assert rig.calls == []


async def test_what_was_acknowledged_before_a_fetch_began_is_shown_by_it():
    """It joins a read that another fetch began earlier, which may not have it."""
    gated = GatedChatStorage(InMemoryChatStorage())
    await restarted(gated)
    rig = Rig(gated, shared=True)
    gate = gated.hold("load_summary")
    earlier = begin(rig.view())
    await gate.reached()
    await gated.inner.save_chat_messages(*IDS, dialogue(1, start=10))  # another worker's
    later = begin(rig.view())
    for _ in range(10):
        await asyncio.sleep(0)
    gate.open()
    assert names(await later)[-1] == "m10"
    assert names(await earlier)[-1] in ("m9", "m10")


async def test_a_fetch_that_saw_more_than_the_one_it_joins_shows_it():
    """Both looked at an inactive chat; the second look has what another worker stored between."""
    gated = GatedChatStorage(InMemoryChatStorage())
    await restarted(gated)
    rig = Rig(gated, shared=True)
    first, second = gated.hold("read", "after"), gated.hold("read", "after")
    record = gated.hold("load_summary")
    earlier = begin(rig.view())
    await first.reached()
    await gated.inner.save_chat_messages(*IDS, dialogue(1, start=10))
    later = begin(rig.view())
    await second.reached()
    first.open()
    await record.reached()  # the earlier one has added the buffer, and loads
    second.open()
    for _ in range(10):
        await asyncio.sleep(0)
    record.open()
    assert names(await later)[-1] == "m10"
    await earlier
