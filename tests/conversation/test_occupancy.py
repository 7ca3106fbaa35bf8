"""How full the context is: reports, estimates, summaries, and what the next run inherits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from talking import LONG, Summarizer, heads, turn, turns

from agent_memory import (
    ConversationManager,
    ConversationMessage,
    SummaryRecord,
    SummaryResult,
    Usage,
)
from agent_memory.conversation.context_size import ContextSize
from agent_memory.records import Covered
from agent_memory.testing import FlakyChatStorage
from agent_memory.tokens import HeuristicTokenCounter
from rig import IDS, KEY, assistant, call, result, texts, user

COUNT = HeuristicTokenCounter().count


def estimate(messages):
    return sum(map(COUNT, messages))


async def test_it_begins_with_nothing(storage):
    """A thread that does not exist yet takes no room."""
    assert (await ConversationManager(storage).start_run(*IDS)).context_tokens == 0


async def test_what_is_added_is_estimated(storage):
    """Before the provider has said anything."""
    run = await ConversationManager(storage).start_run(*IDS)
    messages = [user(LONG), call("c1"), result("c1")]
    run.add(messages)
    assert run.context_tokens == estimate(messages)
    await run.messages()
    assert run.context_tokens == estimate(messages)


async def test_a_report_replaces_estimates(storage):
    """Prompt and reply are the context now; what comes after is estimated on top."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.add(user(LONG))
    await run.messages()
    run.record_usage(Usage(5_000, 200))
    assert run.context_tokens == 5_200
    run.add(assistant("answer"), measured=True)
    assert run.context_tokens == 5_200
    more = [call("c1"), result("c1")]
    run.add(more)
    assert run.context_tokens == 5_200 + estimate(more)


async def test_usage_that_goes_down_is_believed(storage):
    """A provider, or the application, may have dropped something."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.record_usage(Usage(5_000, 200))
    run.record_usage(Usage(300, 20))
    assert run.context_tokens == 320


@pytest.mark.parametrize("nothing", [Usage(), Usage(output_tokens=7)])
async def test_a_provider_that_reports_nothing_does_not_empty_the_context(storage, nothing):
    """A stream that ended without usage: the estimates stay, and the reply is one of them."""
    run = await ConversationManager(storage).start_run(*IDS)
    question, reply = user(LONG), assistant(LONG)
    run.add(question)
    run.record_usage(nothing)
    run.add(reply, measured=True)
    assert run.context_tokens == estimate([question, reply])
    run.record_usage(Usage(50, 5))
    run.add(assistant("more"), measured=True)
    assert run.context_tokens == 55


async def test_auxiliary_usage_leaves_it_alone(storage):
    """A classifier's prompt is not this context."""
    run = await ConversationManager(storage).start_run(*IDS)
    run.record_usage(Usage(100, 10))
    run.record_auxiliary_usage(Usage(9_000, 90))
    assert run.context_tokens == 110


async def test_the_next_run_inherits_it(storage):
    """It is a property of the thread."""
    manager = ConversationManager(storage)
    await turn(manager, measured=Usage(5_000, 200))
    run = await manager.start_run(*IDS)
    assert run.context_tokens == 5_200
    question = user("ask")
    run.add(question)
    assert run.context_tokens == 5_200 + COUNT(question)


async def test_so_it_is_after_a_restart(stores):
    """From the note in the log."""
    await turn(ConversationManager(stores.open()), measured=Usage(5_000, 200))
    assert (await ConversationManager(stores.open()).start_run(*IDS)).context_tokens == 5_200


async def test_a_run_that_died_without_a_note_is_estimated_on_top(stores):
    """The note before, and what the dead run stored."""
    manager = ConversationManager(stores.open())
    await turn(manager, measured=Usage(5_000, 200))
    dead = await manager.start_run(*IDS)
    question = user(LONG)
    dead.add(question)
    await dead.messages()
    run = await ConversationManager(stores.open()).start_run(*IDS)
    assert run.context_tokens == 5_200 + COUNT(question)


async def test_a_dead_runs_replies_tell_their_usage(stores):
    """A message that carries the provider's figures is as good as a note."""
    manager = ConversationManager(stores.open())
    await turn(manager, measured=Usage(5_000, 200))
    dead = await manager.start_run(*IDS)
    dead.add([user("ask"), call("c1", usage=Usage(7_000, 70)), more := result("c1")])
    await dead.messages()
    run = await ConversationManager(stores.open()).start_run(*IDS)
    assert run.context_tokens == 7_070 + COUNT(more)


async def test_a_chat_of_another_program_is_estimated(storage):
    """There is no note at all; what its replies tell is believed for what it covers."""
    old, later = user(LONG), user("later")
    await storage.save_chat_messages(*IDS, [old, assistant("fine", usage=Usage(900, 9)), later])
    run = await ConversationManager(storage).start_run(*IDS)
    assert run.context_tokens == 909 + COUNT(later)


async def test_a_report_far_below_the_estimate_covered_something_else(storage):
    """As that of a fork's or a trimmed chat's former view."""
    messages = [*(user(LONG) for _ in range(20)), assistant("fine", usage=Usage(30, 9))]
    await storage.save_chat_messages(*IDS, messages)
    run = await ConversationManager(storage).start_run(*IDS)
    assert run.context_tokens == estimate(messages)


async def test_c54_a_summary_takes_off_what_it_removed_and_adds_itself(storage):
    """From the reported figure; the next run begins there, after a restart too."""
    summarizer = Summarizer(above=4)
    manager = ConversationManager(storage, summarizer)
    await turns(manager, 2, measured=Usage(9_000, 100))
    before = (await storage.fetch_chat(*IDS))[:4]
    run = await manager.start_run(*IDS)
    question = user("ask 3")
    run.add(question)
    (summary, *_) = await run.messages()
    expected = 9_100 + COUNT(question) - estimate(before) + COUNT(summary)
    assert run.context_tokens == expected
    await run.save()
    assert (await ConversationManager(storage).start_run(*IDS)).context_tokens == expected


async def test_a_report_on_a_view_that_was_summarized_since_is_billed_only(storage):
    """Of two tasks that share a run, one has it summarized while the other's request goes on."""
    manager = ConversationManager(storage, Summarizer(above=7))
    await turns(manager, 3)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    shown, summarized = asyncio.Event(), asyncio.Event()
    late, reply = Usage(9_000, 100), assistant(LONG)

    async def ask():
        assert len(await run.messages()) == 7
        shown.set()
        await summarized.wait()
        run.record_usage(late)
        run.add(reply, measured=True)

    asking = asyncio.create_task(ask())
    await shown.wait()
    run.add([assistant("wait"), user("ask more")])
    assert "SUMMARY" in heads(await run.messages())
    before = run.context_tokens
    summarized.set()
    await asking
    assert run.context_tokens == before + COUNT(reply)
    assert run.usage.input_tokens == late.input_tokens
    run.record_usage(Usage(700, 7))  # this task's request had the summary
    assert run.context_tokens == 707


async def test_one_report_is_doubted_and_no_more(storage):
    """What asks in tasks of its own may have the answer reported by another one."""
    manager = ConversationManager(storage, Summarizer(above=7))
    await turns(manager, 3)
    run = await manager.start_run(*IDS)
    run.add(user("ask"))
    await run.messages()
    run.add([assistant("wait"), user("ask more")])
    assert "SUMMARY" in heads(await asyncio.create_task(run.messages()))
    before = run.context_tokens
    run.record_usage(Usage(700, 7))
    assert run.context_tokens == before
    run.record_usage(Usage(800, 8))
    assert run.context_tokens == 808


async def test_a_summary_counts_though_the_process_died_after_it(stores):
    """The note before knows nothing of it; the record does."""
    manager = ConversationManager(stores.open(), Summarizer(above=4))
    await turns(manager, 2, measured=Usage(9_000, 100))
    dead = await manager.start_run(*IDS)
    dead.add(user("ask 3"))
    assert heads(await dead.messages())[0] == "SUMMARY"
    run = await ConversationManager(stores.open()).start_run(*IDS)
    assert run.context_tokens == dead.context_tokens < 9_100


async def test_several_summaries_since_the_note_count_each(stores):
    """Two runs that died, each after a summary."""
    storage = stores.open()
    manager = ConversationManager(storage, Summarizer(above=4))
    await turns(manager, 2, measured=Usage(9_000, 100))
    for number in range(3, 12):
        dead = await manager.start_run(*IDS)
        dead.add([user(f"ask {number} {LONG}"), assistant(f"answer {number} {LONG}")])
        await dead.messages()
    assert len(await storage.summaries().list_summaries(KEY)) > 1
    run = await ConversationManager(stores.open()).start_run(*IDS)
    assert run.context_tokens == dead.context_tokens


async def test_a_reply_that_was_reported_after_the_summary_is_believed(stores):
    """Its figure includes the summary's effect, which is not taken off again."""
    manager = ConversationManager(stores.open(), Summarizer(above=4))
    await turns(manager, 2, measured=Usage(9_000, 100))
    dead = await manager.start_run(*IDS)
    dead.add(user("ask 3"))
    await dead.messages()
    dead.add(assistant("answer", usage=Usage(4_000, 40)))
    await dead.messages()
    assert (await ConversationManager(stores.open()).start_run(*IDS)).context_tokens == 4_040


async def test_c51_what_a_summary_cost_is_not_in_the_context(storage):
    """It is on the record and in the bill."""
    summarizer = Summarizer(above=4, usage=Usage(70_000, 7_000))
    manager = ConversationManager(storage, summarizer)
    run = None
    for number in range(3):
        run, _ = await turn(manager, f"{number}", measured=Usage(100, 10))
    (record,) = await storage.summaries().list_summaries(KEY)
    assert record.usage == Usage(70_000, 7_000)
    assert run.usage == Usage(70_100, 7_010)
    assert run.context_tokens == 110


async def test_a_failed_save_is_not_forgotten(storage):
    """The note that comes late tells the same."""
    flaky = FlakyChatStorage(storage, close_inner=False)
    run = await ConversationManager(flaky).start_run(*IDS)
    run.record_usage(Usage(5_000, 200))
    flaky.fail("before")
    with pytest.raises(Exception, match="connection"):
        await run.save()
    await run.save()
    assert (await ConversationManager(storage).start_run(*IDS)).context_tokens == 5_200


async def test_the_summarizer_is_asked_by_occupancy(storage):
    """Not by what the messages alone seem to take."""
    summarizer = Summarizer(
        lambda messages, tokens: SummaryResult("s", messages[-1:]) if tokens > 8_000 else None
    )
    manager = ConversationManager(storage, summarizer)
    await turn(manager, "one", measured=Usage(7_000, 10))
    _, seen = await turn(manager, "two", measured=Usage(9_000, 10))
    assert len(seen) == 3
    _, seen = await turn(manager, "three")
    assert heads(seen) == ["SUMMARY", "ask three"]


async def test_more_messages_than_are_looked_at_for_a_note_are_estimated(storage):
    """A hundred messages of another program after the newest note."""
    await turn(ConversationManager(storage), measured=Usage(5_000, 200))
    many = [user(f"{number}") for number in range(100)]
    await storage.save_chat_messages(*IDS, many)
    run = await ConversationManager(storage).start_run(*IDS)
    assert run.context_tokens == estimate(await storage.fetch_chat(*IDS))
    assert texts(await run.messages())[-1] == "99"


def test_it_never_says_that_nothing_is_left():
    """Estimates err high, and so may what is taken off."""
    occupancy = ContextSize(HeuristicTokenCounter(), 100)
    record = _record(tokens_before=500, tokens_after=80)
    occupancy.summarize(record)
    assert occupancy.tokens == 40
    occupancy.summarize(record)
    assert 0 < occupancy.tokens <= 40


def _record(**fields):
    return SummaryRecord(
        summary=(ConversationMessage("user", "s"),),
        head=(),
        position=3,
        message_id="m",
        floor=0,
        covered=Covered(1, 3, 3),
        created_at=datetime.now(UTC) - timedelta(hours=1),
        **fields,
    )
