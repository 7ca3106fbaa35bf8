"""Stores that fail and tasks that come between: a run loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import (
    ConversationManager,
    InMemoryChatStorage,
    StorageUnavailableError,
    Usage,
)
from agent_memory.testing import FlakyChatStorage, GatedChatStorage
from rig import IDS, assistant, texts, user


async def test_a_store_that_fails_keeps_messages_from_the_model():
    """What could not be stored is not shown, and is stored by the next attempt."""
    storage = FlakyChatStorage(InMemoryChatStorage(), ["before"])
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user("ask"))
    with pytest.raises(StorageUnavailableError):
        await run.messages()
    assert texts(run.pending) == ["ask"]
    assert texts(await run.messages()) == ["ask"]
    assert run.pending == ()


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_a_lost_answer_loses_and_doubles_nothing(failure):
    """Whether the write came through or not, the run saves again, with what is new."""
    storage = FlakyChatStorage(InMemoryChatStorage())
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    run.record_usage(Usage(10, 5))
    storage.fail(failure, failure)
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            await run.save()
    run.add(assistant("answer"))
    await run.save()
    assert texts(await storage.fetch_chat(*IDS)) == ["ask", "answer"]
    assert texts(await run.messages()) == ["ask", "answer"]
    assert await manager.usage(*IDS) == Usage(10, 5)
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (1, 2)


async def test_a_message_withdrawn_after_a_lost_answer_is_shown_if_it_was_stored():
    """Nobody could know; the log is asked, though other writers' entries are not looked for."""
    storage = FlakyChatStorage(InMemoryChatStorage(), ["after"])
    run = await ConversationManager(storage, shared=False).start_run(*IDS)
    run.add(user("ask", id="m1"))
    with pytest.raises(StorageUnavailableError):
        await run.messages()
    run.withdraw("m1")
    assert texts(await run.messages()) == ["ask"]


async def test_messages_added_while_messages_waits_are_not_lost():
    """They stay pending and come with the next call."""
    storage = GatedChatStorage(InMemoryChatStorage())
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user("ask"))
    gate = storage.hold("append")
    asking = asyncio.create_task(run.messages())
    await gate.reached()
    run.add(assistant("meanwhile"))
    gate.open()
    assert texts(await asking) == ["ask"]
    assert texts(run.pending) == ["meanwhile"]
    assert texts(await run.messages()) == ["ask", "meanwhile"]


async def test_two_tasks_share_a_run_and_lose_nothing():
    """Both store what is pending; what is added meanwhile is not taken for stored."""
    storage = GatedChatStorage(InMemoryChatStorage())
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user("ask"))
    first, second = storage.hold("append"), storage.hold("append")
    tasks = [asyncio.create_task(run.messages()), asyncio.create_task(run.save())]
    await first.reached()
    run.add(assistant("meanwhile"))
    first.open()
    second.open()
    await asyncio.gather(*tasks)
    await run.save()
    assert texts(await storage.fetch_chat(*IDS)) == ["ask", "meanwhile"]


async def test_many_tasks_add_and_ask(storage):
    """Twenty tools that end at once."""
    run = await ConversationManager(storage).start_run(*IDS)

    async def tool(number):
        run.add(user(f"result {number}", id=f"m{number}"))
        return await run.messages()

    seen = await asyncio.gather(*map(tool, range(20)))
    assert all(f"m{n}" in {m.id for m in view} for n, view in enumerate(seen))
    assert len(await storage.fetch_chat(*IDS)) == 20
