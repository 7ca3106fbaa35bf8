"""What a run stores, and when: on every way out, and however it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from talking import turn

from agent_memory import (
    ConversationManager,
    FileChatStorage,
    InMemoryChatStorage,
    Note,
    StorageUnavailableError,
    Usage,
    open_storage,
)
from agent_memory.testing import FlakyChatStorage, GatedChatStorage
from rig import IDS, assistant, texts, user


async def log_of(storage):
    return [entry async for entry in storage.iter_log(*IDS)]


async def test_saving_again_appends_only_what_is_new(storage):
    """Under one run id, however often."""
    run = await ConversationManager(storage).start_run(*IDS, run_id="r1")
    run.add(user("ask"))
    await run.save()
    run.add(assistant("answer"))
    await run.save()
    assert texts(await storage.fetch_chat(*IDS)) == ["ask", "answer"]
    before = await log_of(storage)
    await run.save()
    assert await log_of(storage) == before


async def test_a_run_is_saved_by_another_object_under_the_same_id(storage):
    """As a worker does that takes over: it appends only what is new."""
    manager = ConversationManager(storage)
    question, reply = user("ask"), assistant("answer")
    first = await manager.start_run(*IDS, run_id="r1")
    first.add(question)
    await first.save()
    second = await manager.start_run(*IDS, run_id="r1")
    second.add([question, reply])
    await second.save()
    assert texts(await storage.fetch_chat(*IDS)) == ["ask", "answer"]
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (1, 2)


async def test_messages_and_note_are_one_append(storage):
    """The account of a save is there if its messages are, and only then."""
    counted = GatedChatStorage(storage)
    run = await ConversationManager(counted).start_run(*IDS)
    run.add([user("ask"), assistant("answer")])
    gate = counted.hold("append")
    saving = asyncio.create_task(run.save())
    await gate.reached()
    assert await log_of(storage) == []
    gate.open()
    await saving
    *messages, note = await log_of(storage)
    assert texts(messages) == ["ask", "answer"]
    assert isinstance(note, Note)


async def test_a_block_that_ends_is_saved(storage):
    """``async with`` on the run."""
    async with await ConversationManager(storage).start_run(*IDS) as run:
        run.add(user("ask"))
    assert texts(await storage.fetch_chat(*IDS)) == ["ask"]


async def test_a_block_that_fails_is_saved(storage):
    """A failed model call costs nothing that was said; the error arrives."""
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)

    async def work():
        async with run:
            run.add(user("ask"))
            run.record_usage(Usage(7, 3))
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await work()
    assert texts(await storage.fetch_chat(*IDS)) == ["ask"]
    assert await manager.usage("user") == Usage(7, 3)


async def test_a_block_that_is_cancelled_is_saved(storage):
    """A run given up while the model answers; the cancellation arrives."""
    waiting = asyncio.Event()

    async def work():
        async with await ConversationManager(storage).start_run(*IDS) as run:
            run.add(user("ask"))
            await run.messages()
            run.add(assistant("part of"))
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert texts(await storage.fetch_chat(*IDS)) == ["ask", "part of"]


async def test_a_cancellation_during_the_last_save_does_not_tear_it():
    """It is in the log when the block is left, and the cancellation arrives."""
    inner = InMemoryChatStorage()
    storage = GatedChatStorage(inner)

    async def work():
        async with await ConversationManager(storage).start_run(*IDS) as run:
            run.add([user("ask"), assistant("answer")])

    gate = storage.hold("append")
    task = asyncio.create_task(work())
    await gate.reached()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert texts(await inner.fetch_chat(*IDS)) == ["ask", "answer"]


async def test_a_store_that_fails_at_the_end_of_a_block_is_told():
    """The block raises what the store did, and what is pending can still be saved."""
    storage = FlakyChatStorage(InMemoryChatStorage(), ["before"])
    with pytest.raises(StorageUnavailableError):
        async with await ConversationManager(storage).start_run(*IDS) as run:
            run.add(user("ask"))
    await run.save()
    assert texts(await storage.fetch_chat(*IDS)) == ["ask"]


async def test_a_store_that_fails_as_well_does_not_hide_what_ended_the_block(caplog):
    """The block's own error arrives, with a note; the failed save is logged."""
    storage = FlakyChatStorage(InMemoryChatStorage(), ["before"])
    run = await ConversationManager(storage).start_run(*IDS)

    async def work():
        async with run:
            run.add(user("private"))
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as raised:
        await work()
    assert "could not be saved" in raised.value.__notes__[0]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "private" not in caplog.text
    await run.save()
    assert texts(await storage.fetch_chat(*IDS)) == ["private"]


async def test_a_time_limit_around_a_block_works_though_the_store_fails():
    """The cancellation that a time limit is made of gets through."""
    storage = FlakyChatStorage(InMemoryChatStorage(), ["before"])
    run = await ConversationManager(storage).start_run(*IDS)

    async def work():
        async with asyncio.timeout(0), run:
            run.add(user("ask"))
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()


_DIES = """
    import asyncio, os, signal, sys
    from agent_memory import ConversationManager, ConversationMessage, open_storage

    async def main():
        manager = ConversationManager(open_storage(sys.argv[1]))
        run = await manager.start_run("user", "session", "agent", run_id="dead")
        run.add(ConversationMessage("user", "ask"))
        await run.messages()
        run.add(ConversationMessage("assistant", "never said"))
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "file", "postgres"])
async def test_a_killed_process_keeps_the_users_turn(kind, tmp_path, request):
    """What the model was shown is in the store, whatever becomes of the process."""
    urls = {"sqlite": f"sqlite:///{tmp_path / 'c.db'}", "file": f"file://{tmp_path / 'chats'}"}
    url = urls.get(kind) or request.getfixturevalue("postgres_url")
    await turn(ConversationManager(storage := open_storage(url)), "before")
    await storage.aclose()
    command = [sys.executable, "-c", textwrap.dedent(_DIES), url]
    environment = {**os.environ, "PYTHONPATH": "."}
    died = await asyncio.to_thread(subprocess.run, command, check=False, env=environment)
    assert died.returncode == -signal.SIGKILL
    async with open_storage(url) as storage:
        _, seen = await turn(ConversationManager(storage), "after")
        assert texts(seen) == ["ask before", "answer before", "ask", "ask after"]


async def test_a_torn_file_and_one_more_save_lose_nothing_but_the_torn_record(tmp_path):
    """The save whose last line is torn is gone; everything before and after it is there."""
    async with FileChatStorage(tmp_path / "chats") as storage:
        manager = ConversationManager(storage)
        await turn(manager, "one", measured=Usage(10, 1))
        await turn(manager, "two", measured=Usage(20, 2))
    (path,) = (tmp_path / "chats").rglob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-5])
    async with FileChatStorage(tmp_path / "chats") as storage:
        manager = ConversationManager(storage)
        _, seen = await turn(manager, "three", measured=Usage(30, 3))
        assert texts(seen) == ["ask one", "answer one", "ask two", "ask three"]
    async with FileChatStorage(tmp_path / "chats") as storage:
        manager = ConversationManager(storage)
        assert texts(await manager.load_transcript(*IDS)) == [*texts(seen), "answer three"]
        assert await manager.usage("user") == Usage(40, 4)
        (thread,) = await manager.list_threads()
        assert (thread.runs, thread.messages) == (3, 5)
        assert (await manager.start_run(*IDS)).context_tokens == 33
