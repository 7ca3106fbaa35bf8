"""The doubles do what they say and keep the contract otherwise."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import (
    ChatKey,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    SummaryRecord,
)
from agent_memory.errors import StorageUnavailableError
from agent_memory.records import Covered
from agent_memory.testing import (
    ChatStorageTests,
    CountingChatStorage,
    FlakyChatStorage,
    Gate,
    GatedChatStorage,
    ScriptedSummarizer,
    SlowChatStorage,
    blind_cut,
    witness_summary,
    witnessed,
)

IDS = ("user", "session", "agent")


def user(text="hello", **fields):
    return ConversationMessage("user", text, **fields)


def doubles():
    slow = SlowChatStorage(InMemoryChatStorage(), 0)
    return CountingChatStorage(FlakyChatStorage(GatedChatStorage(slow)))


@pytest.mark.matrix(but="differs_by_engine")
class TestDoubles(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return doubles


async def test_a_slow_store_waits_before_it_works(loop_clock):
    """While it waits, nothing has been stored."""
    inner = InMemoryChatStorage()
    saving = asyncio.ensure_future(SlowChatStorage(inner, 60).save_chat_message(*IDS, user()))
    await asyncio.sleep(0)
    assert await inner.fetch_chat(*IDS) == []
    while not saving.done():  # it takes a few steps until it waits
        loop_clock.advance(60)
        await asyncio.sleep(0)
    await saving
    assert len(await inner.fetch_chat(*IDS)) == 1


def test_a_negative_delay_is_refused():
    """There is no waiting backwards."""
    with pytest.raises(InvalidRequestError):
        SlowChatStorage(InMemoryChatStorage(), -1)


async def test_a_flaky_store_fails_before_and_after_the_write():
    """Before: nothing is stored, and known not to be. After: stored, and unknown."""
    inner = InMemoryChatStorage()
    storage = FlakyChatStorage(inner, ["before", None, "after"])
    with pytest.raises(StorageUnavailableError) as before:
        await storage.save_chat_message(*IDS, user("1"))
    assert before.value.stored is False
    await storage.save_chat_message(*IDS, user("2"))
    with pytest.raises(StorageUnavailableError) as after:
        await storage.save_chat_message(*IDS, user("3"))
    assert after.value.stored is None
    assert storage.failures_left == 0
    await storage.save_chat_message(*IDS, user("4"))
    assert [m.content for m in await inner.fetch_chat(*IDS)] == ["2", "3", "4"]


async def test_a_flaky_store_raises_what_it_is_told_to():
    """Any exception can stand for a failure; unknown failures are refused."""
    storage = FlakyChatStorage(InMemoryChatStorage(), error=lambda key, stored: OSError(28, "x"))
    storage.fail("before")
    with pytest.raises(OSError, match="28"):
        await storage.save_chat_message(*IDS, user())
    with pytest.raises(InvalidRequestError):
        storage.fail("sometimes")


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_gated_store_holds_an_append_at_the_chosen_moment(moment):
    """Before the write nothing is stored yet, after it everything is; one call is held."""
    inner = InMemoryChatStorage()
    storage = GatedChatStorage(inner)
    gate = storage.hold("append", moment)
    saving = asyncio.ensure_future(storage.save_chat_message(*IDS, user("held")))
    await gate.reached()
    assert len(await inner.fetch_chat(*IDS)) == (moment == "after")
    await storage.save_chat_message(*IDS, user("passes"))
    assert not saving.done()
    gate.open()
    await saving
    assert len(await inner.fetch_chat(*IDS)) == 2


async def test_a_gated_store_holds_every_kind_of_call():
    """Reads, fetches, deletions and summary records can be held too."""
    storage = GatedChatStorage(InMemoryChatStorage())
    (stored,) = await storage.save_chat_message(*IDS, user())
    records = storage.summaries()
    key = ChatKey(*IDS)
    record = SummaryRecord(
        summary=(user(),),
        head=(),
        position=1,
        message_id=stored.id,
        floor=0,
        covered=Covered(1, 1, 1),
    )
    calls = {
        "read": lambda: storage.fetch_chat_since(*IDS, 0),
        "fetch": lambda: storage.fetch_chat(*IDS),
        "save_summary": lambda: records.save_summary(key, record, replaces=None),
        "load_summary": lambda: records.load_summary(key),
        "forget": lambda: storage.delete_chat(*IDS),
    }
    for name, call in calls.items():
        gate = storage.hold(name)
        task = asyncio.ensure_future(call())
        await gate.reached()
        assert not task.done(), name
        gate.open()
        await task


async def test_a_counting_store_counts():
    """Hook calls by name, and entries in both directions."""
    storage = CountingChatStorage(InMemoryChatStorage())
    await storage.save_chat_messages(*IDS, [user() for _ in range(5)])
    await storage.fetch_chat(*IDS, 3)
    await storage.fetch_chat_since(*IDS, 1)
    await storage.fetch_all_chats("user", "session")
    assert storage.calls == {"append": 1, "fetch": 1, "read": 1, "read_session": 1}
    assert (storage.entries_appended, storage.entries_read) == (5, 3 + 4 + 5)
    storage.reset()
    assert (storage.calls, storage.entries_read) == ({}, 0)


def test_a_gate_tells_its_state():
    """Its repr is for the one who debugs a hanging test."""
    gate = Gate()
    assert (repr(gate), gate.is_reached) == ("<Gate closed>", False)


async def test_witnesses_remember_all_that_went_into_them():
    """A witness of a witness stands for the first one's messages too."""
    first = [user(f"{n}") for n in range(4)]
    one = witness_summary(first)
    later = user("later")
    two = witness_summary([one, later])
    assert witnessed(two) == [message.id for message in [*first, later]]
    assert witnessed(later) == [later.id]


async def test_a_scripted_summarizer_follows_its_script():
    """Answers, exceptions and functions in turn, then witnesses; every call is recorded."""
    history = [ConversationMessage("user" if n % 2 else "assistant", f"{n}") for n in range(10)]
    summarizer = ScriptedSummarizer(
        ["", TimeoutError, ValueError("no"), lambda messages, keep_last: messages[-keep_last:]],
        cut=blind_cut,
    )
    assert await summarizer(history, 2) == ""
    with pytest.raises(TimeoutError):
        await summarizer(history, 2)
    with pytest.raises(ValueError, match="no"):
        await summarizer(history, 2)
    assert await summarizer(history, 2) == history[-2:]
    summary, *kept = await summarizer(history, 2)
    assert kept == history[-4:]
    assert witnessed(summary) == [message.id for message in history[:-4]]
    assert [len(call.history) for call in summarizer.calls] == [10] * 5


async def test_a_scripted_summarizer_can_be_held():
    """A test decides what happens while a summary is being made."""
    summarizer = ScriptedSummarizer()
    gate = summarizer.hold()
    history = [user() for _ in range(6)]
    task = asyncio.create_task(summarizer(history, 1))
    await gate.reached()
    assert (summarizer.running, task.done()) == (1, False)
    gate.open()
    assert len(await task) == 3
    assert (summarizer.running, summarizer.most_running) == (0, 1)
