"""Runs that are too long by themselves: coding agents, workers that take them up, restarts."""

from __future__ import annotations

import itertools

import pytest
from talking import LONG, Summarizer, heads, turn, turns

import matrix
from agent_memory import (
    ConversationManager,
    ExtractiveSummarizer,
    InMemoryChatStorage,
    LLMSummarizer,
    SlidingWindowSummarizer,
    SummaryResult,
    Usage,
)
from agent_memory.providers.violations import validate
from agent_memory.testing import witness_summary
from agent_memory.tokens import HeuristicTokenCounter
from histories import SHAPES, Piece, Said, render
from rig import IDS, KEY, call, names, orphans, result, texts, torn, user, violations

PROVIDERS = {
    "openai_chat": "openai",
    "openai_responses": "openai_responses",
    "anthropic": "anthropic",
    "bedrock": "bedrock",
}


def scripted(calls):
    """A model that says little, and how often it was asked."""

    async def model(instruction, transcript, **_parameters):
        calls.append(transcript)
        return "They looked at files."

    return model


def work(number, shape="bedrock"):
    """One tool round of about 60 tokens, in a provider's form."""
    said = [
        Said("assistant", (Piece("text", "Let me look."), Piece("call", "look", f"c{number}"))),
        Said("tool", (Piece("result", f"{number} {LONG[:200]}", f"c{number}"),)),
    ]
    return [
        type(message)(message.role, message.content, extra=dict(message.extra))
        for message in render(said, shape)
    ]


def estimate(messages):
    return sum(map(HeuristicTokenCounter().count, messages))


# ------------------------------------------------------------------------- C67


async def test_c67_a_run_of_three_hundred_rounds_is_divided_between_exchanges(storage):
    """A coding agent: question and newest exchanges verbatim, occupancy near the threshold."""
    asked = []
    manager = ConversationManager(storage, LLMSummarizer(scripted(asked), token_threshold=5_000))
    run = await manager.start_run(*IDS)
    run.add(user("fix the bug"))
    grown = 0
    for number in range(300):
        seen = await run.messages()
        assert run.context_tokens <= 5_500
        assert texts(seen).count("fix the bug") == 1
        assert orphans(seen) == []
        new = work(number)
        grown += estimate(new)
        run.add(new)
    seen = await run.messages()
    assert heads(seen)[0] == "SUMMARY"
    assert texts(seen)[1] == "fix the bug"
    assert len(seen) >= 10
    assert 2 <= len(asked) <= 1 + grown / (5_000 / 4)
    raw = await storage.fetch_chat(*IDS)
    assert torn(seen, raw) == []
    assert seen[-1] == raw[-1]


SUMMARIZERS = {
    "llm": lambda: LLMSummarizer(scripted([]), token_threshold=2_000),
    "extractive": ExtractiveSummarizer,
    "window": SlidingWindowSummarizer,
}


@pytest.mark.parametrize(
    ("shape", "make"),
    matrix.params(
        list(itertools.product(SHAPES, SUMMARIZERS)),
        always=list(zip(SHAPES, itertools.cycle(SUMMARIZERS), strict=False)),
    ),
)
async def test_c67_long_runs_work_with_each_summarizer_and_provider(shape, make):
    """Bounded, valid for the provider, the question there at each round."""
    storage = InMemoryChatStorage()
    manager = ConversationManager(storage, SUMMARIZERS[make](), provider=PROVIDERS[shape])
    run = await manager.start_run(*IDS)
    run.add(render([Said("user", (Piece("text", "fix the bug"),))], shape))
    for number in range(100):
        seen = await run.messages()
        assert validate(seen, PROVIDERS[shape]) == []
        assert any("fix the bug" in str(message.content) for message in seen)
        assert len(seen) <= 90
        run.add(work(number, shape))


async def test_c67_every_round_is_shown_or_went_into_a_summary(storage):
    """Conservation within a run, with a result that names no run."""

    def witness(messages, _tokens):
        return SummaryResult(witness_summary(messages[:-4]), messages[-4:])

    manager = ConversationManager(storage, Summarizer(witness), trigger_tokens=300)
    run = await manager.start_run(*IDS)
    run.add(user("fix the bug"))
    for number in range(60):
        seen = await run.messages()
        assert violations(seen, await storage.fetch_chat(*IDS)) == []
        run.add([call(f"c{number}"), result(f"c{number}")])
    assert heads(seen)[:2] == ["SUMMARY", "fix the"]
    assert len(await storage.summaries().list_summaries(KEY)) >= 2


async def test_c67_a_result_that_names_the_run_in_progress_is_still_refused(storage, caplog):
    """However long that run is."""
    names_it = Summarizer(lambda m, _t: SummaryResult("s", last_summarized_run_id=m[-1].run_id))
    manager = ConversationManager(storage, names_it, trigger_tokens=500)
    run = await manager.start_run(*IDS)
    run.add(user("fix the bug"))
    for number in range(30):
        run.add(work(number))
        await run.messages()
    assert len(await run.messages()) == 61
    assert "still being written, is refused" in caplog.text
    assert "names the run in progress as summarized" in caplog.text
    assert len(names_it.calls) <= 1 + run.context_tokens / 125


async def test_the_limit_of_the_manager_wins_over_the_summarizer_s(storage):
    """`trigger_tokens`; what provider and tools add to the estimate counts, too."""
    asked = []
    summarizer = LLMSummarizer(scripted(asked), token_threshold=10**6)
    manager = ConversationManager(storage, summarizer, trigger_tokens=3_000)
    run = await manager.start_run(*IDS)
    run.add(user("fix the bug"))
    for number in range(40):
        await run.messages()
        run.record_usage(Usage(1_500 + 60 * number, 20))
        run.add(work(number)[:1], measured=True)
        run.add(result(f"c{number}"))
    assert asked


# ------------------------------------------------------------------------- C112


def careless():
    """Keeps the newest message alone, and shows what it was given."""
    return Summarizer(
        lambda m, _t: SummaryResult(witness_summary(m[:-1]), m[-1:]) if len(m) > 4 else None
    )


async def test_c112_a_second_worker_summarizes_while_the_first_awaits_a_result(stores):
    """The result finds its call; nothing is shown raw again; the question is there once."""
    plain = ConversationManager(stores.open())
    first = await plain.start_run(*IDS, run_id="first")
    first.add([user("fix the bug"), *(m for n in range(6) for m in work(n)), call("open")])
    await first.messages()
    second = await ConversationManager(stores.open(), careless(), trigger_tokens=300).start_run(
        *IDS, run_id="second"
    )
    second.add(user("how far are you?"))
    seen = await second.messages()
    assert heads(seen)[0] == "SUMMARY"
    assert "fix the bug" in texts(seen)
    again = await ConversationManager(stores.open()).start_run(*IDS, run_id="first")
    assert (await again.messages())[: len(seen)] == seen
    again.add(result("open"))
    seen = await again.messages()
    assert heads(seen)[0] == "SUMMARY"
    assert texts(seen).count("fix the bug") == 1
    assert orphans(seen) == []
    assert names(seen)[-1] == (await stores.open().fetch_chat(*IDS))[-1].id
    assert violations(seen, await stores.open().fetch_chat(*IDS)) == []


async def test_c112_a_run_resumed_after_a_restart_goes_on_from_the_record(stores):
    """It stands for a part of the run itself; a further summary follows from it."""
    for start in range(0, 60, 10):
        manager = ConversationManager(stores.open(), careless(), trigger_tokens=500)
        run = await manager.start_run(*IDS, run_id="long")
        if not start:
            run.add(user("fix the bug"))
        for number in range(start, start + 10):
            run.add(work(number))
            seen = await run.messages()
            assert texts(seen).count("fix the bug") == 1
            assert violations(seen, await stores.open().fetch_chat(*IDS)) == []
        await run.save()
    assert len(seen) < 30
    records = await stores.open().summaries().list_summaries(KEY)
    assert len(records) >= 3
    assert [r.replaces for r in records[1:]] == [r.id for r in records[:-1]]


# ------------------------------------------------------------------------- C119


async def test_c119_nothing_to_gain_is_asked_again_after_a_pair(storage):
    """As after "not yet": "keep the newest six" keeps about six."""

    def newest_six(messages, _tokens):
        return SummaryResult("what was said", messages[-6:])

    events = []
    summarizer = Summarizer(newest_six)
    manager = ConversationManager(storage, summarizer, on_event=events.append)
    for number in range(20):
        _, seen = await turn(manager, f"{number} {LONG}")
        assert len(seen) <= 10
    reasons = [getattr(event, "reason", "compacted") for event in events]
    assert reasons[:2] == ["nothing_to_gain"] * 2
    assert "compacted" in reasons


async def test_a_custom_object_without_a_limit_is_not_warned_of(storage, caplog):
    """It decides itself: none is due."""
    manager = ConversationManager(storage, Summarizer(lambda _m, _t: None))
    await turns(manager, 6)
    assert caplog.records == []
