"""Several runs, managers and processes on one thread: nothing is lost, everybody sees it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest
from talking import LONG, Summarizer, heads, turn, turns

from agent_memory import ConversationManager, InMemoryChatStorage, Usage, open_storage
from agent_memory.testing import witness_summary, witnessed
from rig import IDS, KEY, assistant, call, result, texts, user


async def test_concurrent_first_runs_lose_nothing(storage):
    """Twenty at once on a thread that does not exist yet."""
    manager = ConversationManager(storage)
    done = await asyncio.gather(*(turn(manager, f"{n}", measured=Usage(1, 1)) for n in range(20)))
    raw = await storage.fetch_chat(*IDS)
    expected = [f"{what} {n}" for n in range(20) for what in ("ask", "answer")]
    assert sorted(texts(raw)) == sorted(expected)
    assert all(f"ask {n}" in texts(seen) for n, (_, seen) in enumerate(done))
    assert await manager.usage("user") == Usage(20, 20)
    (thread,) = await manager.list_threads()
    assert thread.messages == 40


async def test_a_run_sees_what_others_saved_meanwhile(stores):
    """Another manager, over another store object; in order of saving."""
    one = await ConversationManager(stores.open()).start_run(*IDS)
    two = await ConversationManager(stores.open()).start_run(*IDS)
    one.add(user("one"))
    two.add(user("two"))
    await one.messages()
    assert texts(await two.messages()) == ["one", "two"]
    assert texts(await one.messages()) == ["one", "two"]


async def test_without_sharing_a_run_sees_them_with_its_next_save():
    """``shared=False`` saves a read; the gap before a save of its own shows them all the same."""
    storage = InMemoryChatStorage()
    run = await ConversationManager(storage, shared=False).start_run(*IDS)
    run.add(user("one"))
    await run.messages()
    await storage.save_chat_message(*IDS, user("two"))
    assert texts(await run.messages()) == ["one"]
    run.add(user("three"))
    assert texts(await run.messages()) == ["one", "two", "three"]


async def test_two_managers_with_summarizers_keep_every_message(stores):
    """In turns and at once: each raw message is shown, or went into the live summary."""

    def witness(messages, _tokens):
        from agent_memory import SummaryResult  # noqa: PLC0415  (only here)

        if len(messages) < 6:
            return None
        return SummaryResult(witness_summary(messages[:-3]), messages[-3:])

    managers = [ConversationManager(stores.open(), Summarizer(witness)) for _ in range(2)]
    for number in range(12):
        await asyncio.gather(*(turn(m, f"{number} {LONG}") for m in managers))
    run = await managers[0].start_run(*IDS)
    view = await run.messages()
    raw = await stores.open().fetch_chat(*IDS)
    assert len(raw) == 48
    accounted = [name for message in view for name in witnessed(message)]
    assert set(accounted) == {message.id for message in raw}
    assert len(await stores.open().summaries().list_summaries(KEY)) > 1


async def test_a_deletion_in_the_middle_of_a_run(storage):
    """What was deleted stays so; what the run produces afterwards is stored and shown."""
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 3)
    run = await manager.start_run(*IDS)
    run.add([user("ask"), call("c1")])
    await run.messages()
    await storage.delete_chat(*IDS)
    run.add(result("c1"))
    seen = await run.messages()
    assert [message.role.value for message in seen] == ["user"]
    await run.save()
    again = await ConversationManager(storage).start_run(*IDS)
    assert await again.messages() == seen
    assert again.context_tokens == run.context_tokens < 50


async def test_a_trim_in_the_middle_of_a_run(storage):
    """The summary goes with it; the view is what is left."""
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 4)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    assert heads(await run.messages())[0] == "SUMMARY"
    await storage.trim_chat(*IDS, 3)
    assert heads(await run.messages()) == ["ask 4", "answer 4", "ask"]
    run.add(assistant("answer"))
    assert heads(await run.messages()) == ["ask 4", "answer 4", "ask", "answer"]


_WORKER = """
    import asyncio, sys
    from agent_memory import ConversationManager, ConversationMessage, Usage, open_storage

    async def main(url, name):
        async with open_storage(url) as storage:
            manager = ConversationManager(storage)
            for number in range(20):
                async with await manager.start_run("user", "session", "agent") as run:
                    run.add(ConversationMessage("user", f"{name} asks {number}"))
                    seen = await run.messages()
                    assert seen[-1].run_id == run.id or any(m.run_id == run.id for m in seen)
                    run.record_usage(Usage(1, 1))
                    run.add(ConversationMessage("assistant", f"{name} {number}"), measured=True)

    asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "kind",
    ["sqlite", *(pytest.param(kind, marks=pytest.mark.matrix) for kind in ("file", "postgres"))],
)
async def test_two_processes_on_one_thread_lose_nothing(kind, tmp_path, request):
    """Twenty runs each."""
    urls = {"sqlite": f"sqlite:///{tmp_path / 'c.db'}", "file": f"file://{tmp_path / 'chats'}"}
    url = urls.get(kind) or request.getfixturevalue("postgres_url")
    environment = {**os.environ, "PYTHONPATH": "."}
    command = [sys.executable, "-c", textwrap.dedent(_WORKER), url]
    workers = [
        asyncio.to_thread(subprocess.run, [*command, name], check=True, env=environment)
        for name in ("first", "second")
    ]
    await asyncio.gather(*workers)
    async with open_storage(url) as storage:
        manager = ConversationManager(storage)
        assert len(await manager.load_transcript(*IDS)) == 80
        assert await manager.usage("user") == Usage(40, 40)
        (thread,) = await manager.list_threads()
        assert thread.messages == 80
