"""Looking back: transcripts, and the list of threads."""

from __future__ import annotations

import pytest
from talking import LONG, Summarizer, turn, turns

from agent_memory import (
    ConversationManager,
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    Note,
    Usage,
)
from agent_memory.conversation import ThreadInfo
from agent_memory.testing import CountingChatStorage
from rig import IDS, assistant, call, result, system, texts, user


async def test_a_transcript_is_the_thread_as_it_was_written(storage):
    """No summary stands in for anything, and no note is in it."""
    manager = ConversationManager(storage, Summarizer())
    await turns(manager, 6)
    transcript = await manager.load_transcript(*IDS)
    assert transcript == await storage.fetch_chat(*IDS)
    assert [message.run_id for message in transcript] == [
        f"r{number}" for number in range(1, 7) for _ in range(2)
    ]


async def test_a_long_transcript_can_be_streamed(storage):
    """A page at a time, however long it is."""
    many = [user(f"{number}") for number in range(450)]
    await storage.save_chat_messages(*IDS, many)
    counting = CountingChatStorage(storage, close_inner=False)
    manager = ConversationManager(counting)
    stream = manager.iter_transcript(*IDS)
    first = await anext(stream)
    assert first.content == "0"
    assert counting.entries_read <= 200
    rest = [message async for message in stream]
    assert texts([first, *rest]) == texts(many)


async def test_an_unknown_thread_has_an_empty_transcript(storage):
    """And reading it makes none."""
    manager = ConversationManager(storage)
    assert await manager.load_transcript("user", "unknown", "agent") == []
    assert await manager.list_threads() == []


async def test_threads_come_newest_first(storage):
    """By when they were written to last, not by when they began."""
    manager = ConversationManager(storage)
    for session in ("one", "two", "three", "one"):
        await turn(manager, session, ids=("user", session, "agent"))
    threads = await manager.list_threads("user")
    assert [thread.key.session_id for thread in threads] == ["one", "three", "two"]
    assert [thread.runs for thread in threads] == [2, 1, 1]
    assert [thread.messages for thread in threads] == [4, 2, 2]
    for thread in threads:
        assert thread.created_at <= thread.updated_at
    assert threads[0].created_at < threads[2].created_at < threads[0].updated_at


async def test_threads_of_one_user_or_of_all(storage):
    """And no more than are asked for."""
    manager = ConversationManager(storage)
    for name in ("ann", "bob", "ann"):
        await turn(manager, ids=(name, f"s {name}", "agent"))
    await turn(manager, ids=("ann", "t", "agent"))
    assert len(await manager.list_threads()) == 3
    assert [t.key.session_id for t in await manager.list_threads("ann")] == ["t", "s ann"]
    assert [t.key.session_id for t in await manager.list_threads(limit=1)] == ["t"]
    assert await manager.list_threads(limit=0) == []
    assert await manager.list_threads("nobody") == []
    with pytest.raises(InvalidRequestError, match="limit"):
        await manager.list_threads(limit=-1)
    with pytest.raises(InvalidRequestError, match="user_id"):
        await manager.list_threads("")


@pytest.mark.parametrize(
    ("messages", "title"),
    [
        ([user("How do I fly?")], "How do I fly?"),
        ([user("\n\n  First line \nsecond line")], "First line"),
        ([user("x" * 100)], "x" * 80),
        ([user("é" * 81)], "é" * 80),
        ([system("You are an agent."), assistant("Hello!"), user("Book it")], "Book it"),
        ([user("  \n "), user("then this")], "then this"),
        ([user([{"type": "image_url", "image_url": {"url": "x"}}]), user("a cat?")], "a cat?"),
        ([user([{"text": "In blocks"}, {"text": "two"}])], "In blocks"),
        ([call("c1"), result("c1"), user("after tools")], "after tools"),
        ([assistant("only the assistant")], ""),
        ([*(system("s") for _ in range(30)), user("late")], "late"),
        ([ConversationMessage("user", None), user("said")], "said"),
    ],
)
async def test_a_title_is_the_first_line_of_the_first_user_text(messages, title):
    """At most 80 characters of it."""
    storage = InMemoryChatStorage()
    await storage.save_chat_messages(*IDS, messages)
    (thread,) = await ConversationManager(storage).list_threads()
    assert thread.title == title
    assert thread.messages == len(messages)


async def test_counts_are_right_after_a_trim(storage):
    """Of what is left; the title is that of the first user text that is left."""
    manager = ConversationManager(storage)
    await turns(manager, 4, text="x")
    await storage.trim_chat(*IDS, 3)
    (thread,) = await manager.list_threads()
    assert (thread.title, thread.runs, thread.messages) == ("ask 4 x", 2, 3)
    await turn(manager, "five")
    (thread,) = await manager.list_threads()
    assert (thread.title, thread.runs, thread.messages) == ("ask 4 x", 3, 5)


async def test_messages_of_no_run_are_one_run_between_others(storage):
    """Neighbours without a run id are one block."""
    manager = ConversationManager(storage)
    await turn(manager, "one")
    await storage.save_chat_messages(*IDS, [user("by others"), assistant("fine")])
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (2, 4)
    await turn(manager, "two")
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (3, 6)


async def test_a_chat_without_notes_is_counted(storage):
    """All of it by another program, or by runs that died."""
    for number in range(3):
        messages = [user("ask", run_id=f"r{number}"), assistant("fine", run_id=f"r{number}")]
        await storage.save_chat_messages(*IDS, messages)
    (thread,) = await ConversationManager(storage).list_threads()
    assert (thread.runs, thread.messages) == (3, 6)


async def test_runs_at_once_are_counted_each(storage):
    """A note written beside another run's messages does not count them; the list does."""
    manager = ConversationManager(storage)
    started = [await manager.start_run(*IDS) for _ in range(3)]
    for number, run in enumerate(started):
        run.add(user(f"ask {number}"))
        await run.save()
    for run in started:
        run.add(assistant("fine"))
        await run.save()
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (6, 6)  # six blocks: they lie across each other
    await turn(manager, "alone")
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (7, 8)


async def test_a_run_that_comes_back_is_a_new_block(storage):
    """As everywhere."""
    manager = ConversationManager(storage)
    for name in ("r1", "r2", "r1", "r1"):
        await turn(manager, run_id=name)
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (3, 8)


async def test_a_run_without_messages_is_none(storage):
    """Usage alone was saved; the next run's messages are one run."""
    manager = ConversationManager(storage)
    await turn(manager, run_id="r1")
    async with await manager.start_run(*IDS, run_id="r2") as run:
        run.record_auxiliary_usage(Usage(1, 1))
    async with await manager.start_run(*IDS, run_id="r1") as run:
        run.add(user("more"))
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (1, 3)


async def test_a_deleted_thread_is_not_listed(storage):
    """Begun again it is a new one."""
    manager = ConversationManager(storage)
    await turns(manager, 3)
    await storage.delete_chat(*IDS)
    assert await manager.list_threads() == []
    await turn(manager, "anew")
    (thread,) = await manager.list_threads()
    assert (thread.title, thread.runs, thread.messages) == ("ask anew", 1, 2)


async def test_notes_of_others_are_no_messages(storage):
    """They take a place in the log and nothing else."""
    manager = ConversationManager(storage)
    await turn(manager)
    for _ in range(20):
        await storage.save_note(*IDS, Note("mine", {"n": 1}))
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (1, 2)


async def test_listing_reads_the_ends_of_threads_alone(storage):
    """However long they are, as long as runs were saved."""
    manager = ConversationManager(storage)
    for session in range(3):
        for number in range(30):
            await turn(manager, f"{number}", ids=("user", f"s{session}", "agent"))
    counting = CountingChatStorage(storage, close_inner=False)
    threads = await ConversationManager(counting).list_threads()
    assert [thread.messages for thread in threads] == [60] * 3
    assert counting.entries_read <= 3 * 32


async def test_so_it_does_after_a_summary_and_a_restart(stores):
    """What a run counts does not depend on what its view shows."""
    for number in range(40):
        manager = ConversationManager(stores.open(), Summarizer())
        await turn(manager, f"{number} {LONG}")
    counting = CountingChatStorage(stores.open(), close_inner=False)
    (thread,) = await ConversationManager(counting).list_threads()
    assert (thread.runs, thread.messages) == (40, 80)
    assert counting.entries_read <= 32


async def test_a_fork_is_listed_as_a_thread(storage):
    """With the title of what it shares."""
    manager = ConversationManager(storage)
    await turns(manager, 3, text="x")
    run, _ = await turn(manager, "instead", after_run_id="r1")
    newest, _ = await manager.list_threads()
    assert newest.key == run.key
    assert (newest.title, newest.runs, newest.messages) == ("ask 1 x", 2, 4)


async def test_a_store_that_fails_fails_the_list():
    """Nothing is left out in silence, and nothing goes on behind the caller's back."""

    class Failing(CountingChatStorage):
        async def _read(self, key, **part):
            if key.session_id == "s1":
                raise OSError("broken")
            return await super()._read(key, **part)

    storage = InMemoryChatStorage()
    for number in range(3):
        await storage.save_chat_message("user", f"s{number}", "agent", user("ask"))
    with pytest.raises(OSError, match="broken"):
        await ConversationManager(Failing(storage)).list_threads()


def test_a_thread_info_is_a_value():
    """Equal when all of it is."""
    one = ThreadInfo(None, "t", 1, 2, None, None)
    assert one == ThreadInfo(None, "t", 1, 2, None, None)


async def test_what_others_write_between_a_runs_saves_is_counted(storage):
    """The run has seen it, and its note counts it."""
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    await run.messages()
    await storage.save_chat_messages(*IDS, [user("by others"), assistant("fine")])
    await run.messages()
    run.add(assistant("answer"))
    await run.save()
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (3, 4)


async def test_what_is_not_seen_yet_makes_a_note_count_nothing(storage):
    """It cannot tell; the list counts for itself."""
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)
    await storage.save_chat_messages(*IDS, [user("by others"), assistant("fine")])
    run.add(user("ask"))
    await run.save()
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (2, 3)
    run.add(assistant("answer"))
    await run.save()
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (2, 4)


async def test_a_run_that_goes_on_after_a_trim_counts_what_is_left(storage):
    """Its notes do not go on counting what was there."""
    manager = ConversationManager(storage)
    await turns(manager, 3)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    await run.messages()
    await storage.trim_chat(*IDS, 2)
    await run.messages()
    run.add(assistant("answer"))
    await run.save()
    (thread,) = await manager.list_threads()
    assert (thread.runs, thread.messages) == (2, 3)
