"""At most one summary for each growth of a thread: calls are counted, over rounds and runs."""

from __future__ import annotations

import asyncio

import pytest
from talking import LONG, Summarizer, heads, turn, turns

from agent_memory import ConversationManager, SummaryResult, Usage
from agent_memory.testing import GatedChatStorage
from agent_memory.tokens import HeuristicTokenCounter
from rig import IDS, KEY, call, orphans, result, texts, user


def overfull(messages, _tokens):
    """Keeps so much that the rest still exceeds every limit: asked, it always summarizes."""
    if len(messages) < 7:
        return None
    return SummaryResult("short", messages[-6:], usage=Usage(100, 10))


async def test_a_context_that_exceeds_its_limit_for_good_is_summarized_as_it_grows(
    storage, server, llm
):
    """Tools and system prompt alone exceed it: a call for each quarter of the limit, no more."""
    manager = ConversationManager(storage, llm(token_threshold=2_000, keep_recent_count=2))
    await turns(ConversationManager(storage), 5)
    run = await manager.start_run(*IDS)
    run.add(user(f"ask {LONG}"))
    grown = 0
    for number in range(100):
        await run.messages()
        run.record_usage(Usage(50_000 + number, 10))
        new = [call(f"c{number}"), result(f"c{number}")]
        grown += sum(map(HeuristicTokenCounter().count, new))
        run.add(new[0], measured=True)
        run.add(new[1])
    assert 2 <= len(server.requests) <= 1 + grown / (2_000 / 4)


async def test_runs_that_exceed_the_limit_for_good_are_summarized_as_they_come(
    storage, server, llm
):
    """Fifty runs of one round each, of equal length."""
    manager = ConversationManager(storage, llm(token_threshold=2_000, keep_recent_count=6))
    await turns(manager, 50, measured=Usage(50_000, 10))
    assert 3 <= len(server.requests) <= 24  # 220 tokens a run, a call for each 500


async def test_so_it_is_with_a_manager_for_every_run(stores):
    """After a restart the record tells how much has come since."""
    summarizer = Summarizer(overfull)
    for number in range(40):
        manager = ConversationManager(stores.open(), summarizer)
        await turn(manager, f"{number} {LONG}")
    given = [len(messages) for messages, _ in summarizer.calls if len(messages) >= 7]
    assert 5 <= len(given) <= 25
    assert max(given) <= 14


async def test_a_function_is_not_asked_in_every_round_or_run(storage):
    """What it keeps alone exceeds the trigger."""
    asked = []

    def function(history, keep_last):
        asked.append(len(history))
        return [user("short"), *history[-8:]]

    manager = ConversationManager(storage, function, trigger_at=3, keep_last=1)
    for number in range(20):
        run = await manager.start_run(*IDS)
        run.add(user(f"{number}"))
        for round_ in range(5):
            await run.messages()
            run.add([call(f"{number}.{round_}"), result(f"{number}.{round_}")])
        await run.save()
    assert 2 <= len(asked) <= 20 * 11 / 6


async def test_a_function_that_leaves_no_room_waits_for_a_whole_limit(storage):
    """Of messages, as on the wrapper; also in another manager, which knows the record."""
    asked = []

    def function(history, keep_last):
        asked.append(len(history))
        return [user("short"), *history[-8:]]

    for _ in range(20):
        await turn(ConversationManager(storage, function, trigger_at=3, keep_last=1), "x")
    assert 4 <= len(asked) <= 8


async def test_a_run_that_is_all_there_is_asks_nobody(storage):
    """There is nothing before it that could be summarized, until it is too long by itself."""
    summarizer = Summarizer(lambda messages, _tokens: SummaryResult("s", messages[-1:]))
    run = await ConversationManager(storage, summarizer).start_run(*IDS)
    run.add(user("ask"))
    for number in range(19):
        await run.messages()
        run.add([call(f"c{number}"), result(f"c{number}")])
    assert summarizer.calls == []


async def test_refused_summaries_are_not_bought_again_in_every_run(storage):
    """A summarizer that always names the open run costs one call in a while."""
    summarizer = Summarizer(
        lambda messages, _tokens: SummaryResult(
            "bad", last_summarized_run_id=messages[-1].run_id, usage=Usage(100, 10)
        )
    )
    await turns(ConversationManager(storage, summarizer), 30, text="x")
    assert len(summarizer.calls) <= 3


async def test_with_headroom_a_thread_is_summarized_as_it_grows(storage, server, llm):
    """The limits themselves space the calls, and the view stays bounded."""
    manager = ConversationManager(storage, llm(token_threshold=1_000, keep_recent_count=2))
    longest = 0
    for number in range(40):
        _, seen = await turn(manager, f"{number} {LONG}")
        longest = max(longest, len(seen))
    assert 5 <= len(server.requests) <= 20
    assert longest <= 12
    assert heads(seen)[0] == "SUMMARY"


async def test_not_yet_is_asked_again_after_a_pair(storage):
    """A summarizer that decides itself may be asked often, but not for nothing."""
    summarizer = Summarizer(lambda _messages, _tokens: None)
    await turn(ConversationManager(storage), "one")
    run = await ConversationManager(storage, summarizer).start_run(*IDS)
    run.add(user("ask"))
    for _ in range(5):
        await run.messages()
    assert len(summarizer.calls) == 1
    run.add([call("c1"), result("c1")])
    await run.messages()
    assert len(summarizer.calls) == 2


async def test_two_tasks_of_a_run_cause_one_call(storage):
    """They ask for messages at once."""
    going_on, began = asyncio.Event(), asyncio.Event()

    async def slow(messages, _tokens):
        began.set()
        await going_on.wait()
        return SummaryResult("s", messages[-1:])

    summarizer = Summarizer(slow)
    await turns(ConversationManager(storage), 3)
    run = await ConversationManager(storage, summarizer).start_run(*IDS)
    run.add(user("ask now"))
    tasks = [asyncio.create_task(run.messages()) for _ in range(5)]
    await began.wait()
    going_on.set()
    views = await asyncio.gather(*tasks)
    assert len(summarizer.calls) == 1
    assert all(heads(view) == ["SUMMARY", "ask now"] for view in views)


async def test_two_runs_of_a_thread_cause_one_call_and_both_see_the_summary(storage):
    """Neither waits for the other; the one that did not ask takes the summary over."""
    going_on, began = asyncio.Event(), asyncio.Event()

    async def slow(messages, _tokens):
        began.set()
        await going_on.wait()
        return SummaryResult("s", last_summarized_run_id="r3")

    summarizer = Summarizer(slow)
    manager = ConversationManager(storage, summarizer)
    await turns(ConversationManager(storage), 3)
    one, two = await manager.start_run(*IDS), await manager.start_run(*IDS)
    one.add(user("ask one"))
    two.add(user("ask two"))
    asking = asyncio.create_task(one.messages())
    await began.wait()
    before = two.context_tokens
    assert len(await two.messages()) == 8
    going_on.set()
    assert heads(await asking) == ["SUMMARY", "ask one"]
    assert heads(await two.messages()) == ["SUMMARY", "ask one", "ask two"]
    assert two.context_tokens < before
    assert len(summarizer.calls) == 1


async def test_two_managers_that_summarize_at_once_agree(stores):
    """One record wins; the other adopts it; raw is whole and both views are right."""
    storage = GatedChatStorage(stores.open())
    make = [
        ConversationManager(storage, Summarizer(lambda m, _t: SummaryResult("s", m[-1:])))
        for _ in range(2)
    ]
    await turns(ConversationManager(storage), 3)
    started = [await manager.start_run(*IDS) for manager in make]
    gates = [storage.hold("save_summary"), storage.hold("save_summary")]
    asking = [asyncio.create_task(run.messages()) for run in started]
    for gate in gates:
        await gate.reached()
    for gate in gates:
        gate.open()
    views = await asyncio.gather(*asking)
    (record,) = await storage.summaries().list_summaries(KEY)
    assert [view[0] for view in views] == [record.summary[0]] * 2
    assert views[0] == views[1]


async def test_a_summary_of_another_run_in_progress_is_not_shown_to_it(storage):
    """What one run covers of another's open work stays verbatim in that other run's view."""
    plain = ConversationManager(storage)
    await turns(plain, 2)
    everything = Summarizer(lambda m, _t: SummaryResult("everything", m[-1:]))
    manager = ConversationManager(storage, everything)
    first = await plain.start_run(*IDS)
    first.add([user("ask first"), call("c1"), result("c1")])
    await first.messages()
    second = await manager.start_run(*IDS)
    second.add(user("ask second"))
    assert "ask second" in heads(await second.messages())
    again = ConversationManager(storage, everything)
    taken_up = await again.start_run(*IDS, run_id=first.id)
    assert texts(await taken_up.messages())[-1] == "ask second"
    seen = await first.messages()
    own = [message for message in seen if message.run_id == first.id]
    assert len(own) == 3


@pytest.mark.parametrize("kept", [1, 4])
async def test_c112_a_run_whose_record_loses_takes_the_other_one_over(storage, kept):
    """It may stand for what the run has done; its question is there, once, and its calls."""
    gated = GatedChatStorage(storage)
    make = Summarizer(lambda m, _t: SummaryResult("mine", m[-kept:]))
    await turns(ConversationManager(storage), 3)
    run = await ConversationManager(gated, make).start_run(*IDS)
    run.add([user("ask own"), call("c1"), result("c1"), call("c2")])
    gate = gated.hold("save_summary")
    asking = asyncio.create_task(run.messages())
    await gate.reached()
    other = await ConversationManager(
        storage, Summarizer(lambda m, _t: SummaryResult("theirs", m[-1:]))
    ).start_run(*IDS)
    other.add(user("ask other"))
    theirs = await other.messages()
    gate.open()
    seen = await asking
    assert seen == theirs
    assert "theirs" in str(seen[0].content)
    assert [text for text in texts(seen) if text == "ask own"] == ["ask own"]
    run.add(result("c2"))
    assert orphans(await run.messages()) == []
