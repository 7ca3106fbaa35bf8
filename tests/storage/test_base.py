"""What the base class promises whatever the hooks do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from agent_memory import ChatStorage, ConversationMessage, InMemoryChatStorage, Note
from agent_memory.storage.wrapper import WrapperChatStorage
from agent_memory.testing import CountingChatStorage, Gate, GatedChatStorage

IDS = ("user", "session", "agent")


def user(text="hello"):
    return ConversationMessage("user", text)


class HeldPurge(WrapperChatStorage):
    def __init__(self, storage):
        super().__init__(storage)
        self.gate = Gate()

    async def _purge(self, older_than):
        await self.gate.passed()
        return await super()._purge(older_than)


@pytest.mark.parametrize("call", ["save", "note", "trim", "delete", "delete_all", "purge"])
async def test_c22_nothing_is_in_flight_when_a_cancellation_leaves(call):
    """Each call that writes waits for its hook to end, however often it is cancelled."""
    inner = InMemoryChatStorage()
    gated = GatedChatStorage(inner)
    storage = HeldPurge(gated)
    await inner.save_chat_messages(*IDS, [user("1"), user("2")])
    calls = {
        "save": lambda: storage.save_chat_message(*IDS, user("3")),
        "note": lambda: storage.save_note(*IDS, Note("run")),
        "trim": lambda: storage.trim_chat(*IDS, 1),
        "delete": lambda: storage.delete_chat(*IDS),
        "delete_all": lambda: storage.delete_chats("user"),
        "purge": lambda: storage.purge(timedelta(0)),
    }
    gate = storage.gate
    if call != "purge":
        gate = gated.hold("append" if call in ("save", "note") else "forget", "after")
    task = asyncio.ensure_future(calls[call]())
    await gate.reached()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_read_is_given_up_at_once():
    """Reads leave nothing half-done and need not be waited for."""
    storage = GatedChatStorage(InMemoryChatStorage())
    gate = storage.hold("fetch")
    task = asyncio.ensure_future(storage.fetch_chat(*IDS))
    await gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_settles_a_save_may_be_cancelled_and_the_save_is_stored():
    """`_after_append` comes after the append and is not waited for."""
    gate = Gate()

    class Settling(WrapperChatStorage):
        async def _after_append(self, key, stored):
            await gate.passed()

    inner = InMemoryChatStorage()
    task = asyncio.ensure_future(Settling(inner).save_chat_message(*IDS, user("kept")))
    await gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.content for m in await inner.fetch_chat(*IDS)] == ["kept"]


async def test_a_fetch_reads_no_more_than_it_needs():
    """The default fetch of a backend reads as many entries as were asked for."""

    class Plain(InMemoryChatStorage):
        _fetch = ChatStorage._fetch

    class Counting(CountingChatStorage):
        async def _fetch(self, key, limit):
            return await ChatStorage._fetch(self, key, limit)

    storage = Counting(Plain())
    await storage.save_chat_messages(*IDS, [user(f"{n}") for n in range(100)])
    assert len(await storage.fetch_chat(*IDS, 7)) == 7
    assert storage.entries_read == 7


async def test_streaming_reads_a_page_at_a_time():
    """A long chat is never held whole; what is not asked for is not read."""
    storage = CountingChatStorage(InMemoryChatStorage())
    await storage.save_chat_messages(*IDS, [user(f"{n}") for n in range(1_000)])
    stream = storage.iter_chat(*IDS)
    for _ in range(10):
        await anext(stream)
    assert storage.entries_read <= 200
    await stream.aclose()
