"""Over a store that a user wrote in forty lines, which keeps no summary records."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import ChatInfo, ChatStorage, ConversationMessage, LogSlice
from rig import IDS, Rig, dialogue, names, system, user, violations


class OwnStorage(ChatStorage):
    """The four hooks, as the docstrings of the contract ask for them."""

    def __init__(self):
        self.logs = {}
        self.floors = {}

    async def _append(self, key, entries):
        floor, log = self.floors.get(key, 0), self.logs.setdefault(key, [])
        known = {entry.id: entry for entry in log[floor:]}
        for entry in entries:
            if entry.id not in known:
                known[entry.id] = entry.placed(len(log) + 1, key.agent_id)
                log.append(known[entry.id])
        return LogSlice([known[entry.id] for entry in entries], floor)

    async def _read(self, key, *, after=0, first=None, last=None):
        floor = self.floors.get(key, 0)
        living = self.logs.get(key, [])[max(after, floor) :]
        return LogSlice(living[:first] if last is None else living[-last:], floor)

    async def _forget(self, key, keep):
        log, floor = self.logs.get(key, []), self.floors.get(key, 0)
        messages = [m for m in log[floor:] if isinstance(m, ConversationMessage)]
        if len(messages) > keep or keep == 0:
            self.floors[key] = messages[-keep].position - 1 if keep else len(log)
        return max(0, len(messages) - keep)

    async def _list(self, user_id, session_id):
        for key, log in sorted(self.logs.items()):
            if user_id in (None, key.user_id) and session_id in (None, key.session_id):
                yield ChatInfo(key, self.floors.get(key, 0), len(log))


@pytest.fixture
def rig():
    return Rig(OwnStorage())


async def conserved(rig):
    view = await rig.view()
    assert violations(view, await rig.raw()) == []
    return view


async def test_a_long_chat_is_summarized_again_and_again(rig):
    """The view stays short and the log whole, without a place for records."""
    await rig.save(system(id="s"))
    await rig.active(7)
    for _ in range(40):
        await rig.talk(1)
        view = await conserved(rig)
    assert view[0].id == "s"
    assert len(view) <= 8
    assert len(await rig.raw()) == 48
    assert len(rig.calls) > 5


async def test_the_next_process_summarizes_anew(rig):
    """There is no record to restore the view from: raw serves, and the model is asked."""
    await rig.active(9)
    again = Rig(rig.inner)
    assert names(await conserved(again)) == ["S", "m8", "m9"]
    assert len(again.calls) == 1


async def test_a_chat_deleted_during_its_summary_stays_deleted(rig):
    """No store refuses a record here; the view itself sees to it."""
    await rig.active(7)
    await rig.talk(3)
    gate = rig.summarizer.hold()
    saving = asyncio.create_task(rig.talk(1))
    await gate.reached()
    await rig.storage.delete_chat(*IDS)
    gate.open()
    await saving
    assert await rig.view() == []
    await rig.save(user(id="new"))
    assert names(await conserved(rig)) == ["new"]


async def test_a_deletion_by_another_writer_is_seen_by_its_floor():
    """As soon as a save of ours tells of it."""
    rig = Rig(OwnStorage(), shared=False)
    await rig.active(7)
    await rig.inner.delete_chat(*IDS)
    await rig.save(user(id="new"))
    assert names(await conserved(rig)) == ["new"]


async def test_accounts_and_commands_work_without_records(rig):
    """There is no history of records; the rest is as ever."""
    await rig.save(*dialogue(5))
    assert await rig.storage.compaction_history(*IDS) == []
    assert await rig.storage.rebuild(*IDS) == 0
    await rig.storage.compact_now(*IDS)
    explanation = await rig.storage.explain(*IDS)
    assert names(explanation.view) == ["S", "m4", "m5"]
    assert explanation.count("covered") == 3
