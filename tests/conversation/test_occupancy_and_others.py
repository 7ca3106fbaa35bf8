"""How full the context is when others write to the thread, trim it, or retract from it."""

from __future__ import annotations

from talking import LONG, Summarizer, turns

from agent_memory import ConversationManager, Usage
from agent_memory.tokens import HeuristicTokenCounter
from rig import IDS, KEY, assistant, texts, user

COUNT = HeuristicTokenCounter().count


def estimate(messages):
    return sum(map(COUNT, messages))


async def test_messages_of_others_count(storage):
    """Another worker's messages are in the view, so they are in the context."""
    manager = ConversationManager(storage)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    await run.messages()
    before = run.context_tokens
    theirs = assistant(LONG)
    await storage.save_chat_message(*IDS, theirs)
    assert len(await run.messages()) == 2
    assert run.context_tokens == before + COUNT(theirs)
    await run.messages()
    assert run.context_tokens == before + COUNT(theirs)


async def test_runs_at_once_end_with_one_occupancy(storage):
    """The next run begins with what the last report said and everything since."""
    manager = ConversationManager(storage)
    one, two = await manager.start_run(*IDS), await manager.start_run(*IDS)
    first, second = user("first"), user("second")
    one.add(first)
    two.add(second)
    await one.messages()
    await two.messages()
    assert two.context_tokens == estimate([first, second])


async def test_a_trim_in_the_middle_of_a_run_is_noticed(storage):
    """What was reported is not in the context any more."""
    manager = ConversationManager(storage)
    await turns(manager, 3, measured=Usage(9_000, 100))
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    await run.messages()
    await storage.trim_chat(*IDS, 2)
    left = await run.messages()
    assert len(left) == 2
    assert run.context_tokens == estimate(left)


async def test_a_note_from_before_a_trim_is_not_believed(storage):
    """The thread is another one now."""
    await turns(ConversationManager(storage), 3, measured=Usage(9_000, 100))
    await storage.trim_chat(*IDS, 2)
    run = await ConversationManager(storage).start_run(*IDS)
    assert run.context_tokens == estimate(await storage.fetch_chat(*IDS))


async def test_what_is_retracted_leaves_the_context(storage):
    """In the middle of a run, and for the next one."""
    manager = ConversationManager(storage)
    await turns(manager, 3, measured=Usage(9_000, 100))
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    await run.messages()
    await storage.clear(*IDS)
    assert await run.messages() == []
    assert run.context_tokens == 0
    run.add(more := user("once more"))
    assert texts(await run.messages()) == ["once more"]
    assert run.context_tokens == COUNT(more)
    assert (await manager.start_run(*IDS)).context_tokens == COUNT(more)
    assert len(await manager.load_transcript(*IDS)) == 8


async def test_a_note_of_a_summary_that_is_gone_is_not_believed(storage):
    """The view is the whole log again, and so is the context."""
    await turns(ConversationManager(storage, Summarizer()), 3, measured=Usage(30, 10))
    await storage.summaries().forget_summaries(KEY)
    run = await ConversationManager(storage).start_run(*IDS)
    assert run.context_tokens >= estimate(await storage.fetch_chat(*IDS)) // 2 > 40
