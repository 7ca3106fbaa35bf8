"""Cases from the field: summary records that are lost, unreadable, or not written yet."""

from __future__ import annotations

import asyncio
import logging

import attrs
import pytest

from agent_memory import StorageUnavailableError, WrapperChatStorage
from agent_memory.errors import CorruptedRecordError
from agent_memory.storage import SummaryStore
from agent_memory.testing import GatedChatStorage
from rig import IDS, KEY, Rig, dialogue, names, texts, violations


class _LosesRecords(WrapperChatStorage):
    """A store that fails to write the next records: before it has, or after."""

    failures = ()

    def summaries(self):
        return _Records(self, super().summaries())


@attrs.frozen
class _Records(SummaryStore):
    storage: _LosesRecords
    inner: SummaryStore

    async def save_summary(self, key, record, *, replaces):
        failure, *self.storage.failures = self.storage.failures or [None]
        if failure == "before":
            raise StorageUnavailableError("not now", stored=False)
        saved = await self.inner.save_summary(key, record, replaces=replaces)
        if failure == "after":
            raise StorageUnavailableError("the answer is lost", stored=None)
        return saved

    async def load_summary(self, key):
        return await self.inner.load_summary(key)

    async def list_summaries(self, key):
        return await self.inner.list_summaries(key)

    async def forget_summaries(self, key):
        return await self.inner.forget_summaries(key)


async def conserved(rig):
    view = await rig.view()
    assert violations(view, await rig.raw()) == []
    return view


async def test_summaries_that_another_worker_forgot_are_made_anew_from_raw(reopen):
    """Whoever still shows one notices at its next summary, and keeps records again."""
    one, two = Rig(reopen()), Rig(reopen())
    await one.active(7)
    await two.view()
    await one.storage.rebuild(*IDS)
    for number in range(8, 14):
        await two.save(*dialogue(1, start=number))
    view = await conserved(two)
    (record,) = await one.inner.summaries().list_summaries(KEY)
    assert (record.replaces, record.covered.first) == (None, 1)
    third = Rig(reopen())
    assert await third.view() == view
    assert third.calls == []


@pytest.mark.parametrize("failures", [["before"], ["before", "before"], ["after"]])
async def test_a_record_that_could_not_be_written_is_written_by_the_next_save(failures, reopen):
    """The view has the summary at once, and the next process finds it."""
    rig = Rig(_LosesRecords(reopen()))
    rig.inner.failures = failures
    assert names(await rig.active(7)) == ["S", "m6", "m7"]
    await rig.talk(len(failures))
    view = await conserved(rig)
    again = Rig(reopen())
    assert await again.view() == view
    assert again.calls == []
    await rig.talk(5)
    records = await rig.inner.summaries().list_summaries(KEY)
    assert [record.replaces for record in records] == [None, records[0].id]


async def test_c60_a_crash_between_answer_and_record_is_as_if_it_had_never_run(reopen):
    """The next process finds the log, and asks for a summary itself."""
    first = Rig(GatedChatStorage(reopen()))
    await first.save(*dialogue(7))
    gate = first.inner.hold("save_summary", "before")
    fetching = asyncio.create_task(first.view())
    await gate.reached()
    (task,) = first.storage._buffers.tasks
    task.cancel()
    await fetching
    second = Rig(reopen())
    assert names(await conserved(second)) == ["S", "m6", "m7"]
    assert (len(second.calls), second.events[0].restored) == (1, False)


class _Unreadable(_LosesRecords):
    """A store whose newest record cannot be read, as one of a newer version."""

    def summaries(self):
        return _UnreadableRecords(self, self.inner.summaries())


class _UnreadableRecords(_Records):
    async def load_summary(self, key):
        raise CorruptedRecordError("written by version 99", key=key, location="row 1")


async def test_c61_a_record_that_cannot_be_read_is_ignored_with_a_warning(reopen, caplog):
    """The view is made from raw, and the chat goes on."""
    await Rig(reopen()).active(7)
    rig = Rig(_Unreadable(reopen()))
    with caplog.at_level(logging.WARNING, "agent_memory"):
        assert names(await conserved(rig)) == ["S", "m6", "m7"]
    assert "version 99" in caplog.text
    for number in range(8, 30):
        await rig.save(*dialogue(1, start=number))
    assert texts(await conserved(rig))[-1] == "say 29"
