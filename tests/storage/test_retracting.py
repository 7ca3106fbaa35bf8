"""Retracting: views forget, the log keeps, and what it costs."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import (
    ConversationMessage,
    FileChatStorage,
    InMemoryChatStorage,
    InvalidRequestError,
    Note,
    SqlChatStorage,
    StorageConflictError,
    WrapperChatStorage,
)
from agent_memory.log import Retraction, retracted_ids, retraction_of, visible
from agent_memory.testing import SlowChatStorage
from rig import IDS, dialogue


class Counting(WrapperChatStorage):
    """Counts the entries that are read."""

    read = 0

    async def _read(self, key, **limits):
        log = await super()._read(key, **limits)
        self.read += len(log.entries)
        return log


@pytest.fixture(params=["memory", "sqlite", "file"])
async def storage(request, tmp_path):
    stores = {
        "memory": InMemoryChatStorage,
        "sqlite": lambda: SqlChatStorage(f"sqlite:///{tmp_path}/chats.db"),
        "file": lambda: FileChatStorage(tmp_path / "chats"),
    }
    async with stores[request.param]() as store:
        yield store


async def shown(storage):
    return [message.id for message in await storage.fetch_chat(*IDS)]


async def test_the_newest_message_is_retracted_again_and_again(storage):
    """Each call takes the next one, whatever was saved between; the log has all of them."""
    await storage.save_chat_messages(*IDS, dialogue(3))
    assert (await storage.retract_newest(*IDS)).id == "m3"
    assert (await storage.retract_newest(*IDS)).id == "m2"
    await storage.save_chat_messages(*IDS, dialogue(1, start=4))
    assert await shown(storage) == ["m1", "m4"]
    assert [(await storage.retract_newest(*IDS)).id for _ in range(2)] == ["m4", "m1"]
    assert await storage.retract_newest(*IDS) is None
    assert await shown(storage) == []
    assert [m.id async for m in storage.iter_chat(*IDS)] == ["m1", "m2", "m3", "m4"]


async def test_an_unknown_chat_has_nothing_to_retract(storage):
    """And is not created."""
    assert await storage.retract_newest(*IDS) is None
    assert [info async for info in storage.list_chats()] == []


async def test_some_messages_are_retracted_by_their_ids(storage):
    """They may lie anywhere in the chat."""
    await storage.save_chat_messages(*IDS, dialogue(5))
    await storage.retract(*IDS, ["m2", "m4"])
    assert await shown(storage) == ["m1", "m3", "m5"]
    assert [(await storage.retract_newest(*IDS)).id for _ in range(3)] == ["m5", "m3", "m1"]


async def test_all_that_was_saved_is_retracted_by_one_small_note(storage):
    """What is saved afterwards is shown; nothing before ever again."""
    await storage.save_chat_messages(*IDS, dialogue(300))
    note = await storage.clear(*IDS)
    assert len(repr(note)) < 500
    assert await storage.retract_newest(*IDS) is None
    await storage.save_chat_messages(*IDS, dialogue(2, start=301))
    assert await shown(storage) == ["m301", "m302"]
    assert await storage.fetch_chat(*IDS, 10) == await storage.fetch_chat(*IDS)


async def test_a_limit_counts_what_is_shown(storage):
    """Retracted messages at the end take no place of others."""
    await storage.save_chat_messages(*IDS, dialogue(30))
    for _ in range(10):
        await storage.retract_newest(*IDS)
    fetched = await storage.fetch_chat(*IDS, 5)
    assert [message.id for message in fetched] == [f"m{n}" for n in range(16, 21)]


async def test_of_many_calls_at_once_each_gets_its_own_message():
    """All see the same newest message at first; nobody retracts what another has retracted."""
    storage = SlowChatStorage(InMemoryChatStorage(), 0)
    await storage.save_chat_messages(*IDS, dialogue(12))
    taken = await asyncio.gather(*(storage.retract_newest(*IDS) for _ in range(10)))
    assert {message.id for message in taken} == {f"m{n}" for n in range(3, 13)}
    assert await shown(storage) == ["m1", "m2"]


async def test_a_foreign_entry_under_the_note_s_id_is_an_error():
    """It is told, not tried for ever."""
    storage = InMemoryChatStorage()
    await storage.save_chat_messages(
        *IDS, [ConversationMessage("user", "hi", id="retracted-2"), *dialogue(1)]
    )
    with pytest.raises(StorageConflictError):
        await storage.retract_newest(*IDS)


async def test_retracting_a_chat_message_by_message_reads_little_of_it():
    """What was found hidden once is passed over: the work does not grow with what is gone."""
    storage = Counting(InMemoryChatStorage())
    await storage.save_chat_messages(*IDS, dialogue(400))
    for _ in range(400):
        assert await storage.retract_newest(*IDS) is not None
    assert await storage.retract_newest(*IDS) is None
    assert storage.read < 400 * 40


async def test_no_ids_are_refused(storage):
    """A call that retracts nothing is a mistake."""
    with pytest.raises(InvalidRequestError, match="at least one"):
        await storage.retract(*IDS, [])


def test_a_malformed_note_retracts_nothing():
    """An application may have notes of that kind with other data."""
    message = dialogue(1)[0]
    notes = [Note("retracted", {"ids": "m1"}), Note("retracted", {"ids": [1]}), Note("other")]
    assert [retraction_of(note) for note in notes] == [None] * 3
    assert visible([message, *notes]) == [message]


def test_a_retraction_is_read_as_it_was_written():
    """Its hint too."""
    retraction = Retraction(frozenset({"a", "b"}), everything=True, hidden=(3, 7))
    assert retraction_of(retraction.to_note()) == retraction


@given(st.lists(st.one_of(st.just("say"), st.just("clear"), st.sets(st.integers(0, 8)))))
def test_only_what_came_before_a_note_is_retracted(steps):
    """Any log of messages and retractions shows what reading it step by step leaves."""
    entries, expected = [], []
    for step in steps:
        if step == "say":
            entries.append(ConversationMessage("user", "hi", id=str(len(entries))))
            expected.append(entries[-1].id)
        elif step == "clear":
            entries.append(Retraction(everything=True).to_note())
            expected.clear()
        else:
            ids = frozenset(map(str, step))
            entries.append(Retraction(ids).to_note())
            expected = [message for message in expected if message not in ids]
    assert [message.id for message in visible(entries)] == expected
    hidden = {e.id for e in entries if isinstance(e, ConversationMessage)} - set(expected)
    assert retracted_ids(entries) == hidden
