"""Long tool work, summarized by a model: valid for the provider that reads it, and bounded."""

from __future__ import annotations

import asyncio

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import matrix
from agent_memory import (
    ConversationManager,
    InMemoryChatStorage,
    LLMSummarizer,
    SummarizingChatStorage,
)
from agent_memory.providers import validate
from agent_memory.tokens import HeuristicTokenCounter
from agent_memory.turns import group
from histories import SHAPES, Piece, Said, conversations, render
from rig import IDS, torn

PROVIDERS = dict(zip(SHAPES, ("openai", "openai_responses", "anthropic", "bedrock"), strict=True))
FEW, MANY = 20, 1_000
FEW_RUNS, MANY_RUNS = 1, 100
ROUNDS = 300
LIMIT = 2_000


async def scripted_model(instruction, transcript, **_parameters):
    return "They looked for it and found it."


def again(said, number):
    """What was said, once more, its calls with ids of their own."""
    return [
        attrs.evolve(
            each,
            pieces=tuple(
                attrs.evolve(piece, id=f"{piece.id}_{number}") if piece.id else piece
                for piece in each.pieces
            ),
        )
        for each in said
    ]


def repeated(said, times):
    question = Said("user", (Piece("text", "fix the bug"),))
    return [question, *(each for number in range(times) for each in again(said, number))]


def only_work(said):
    """Calls and results, narrated or not; no turn ends."""
    return [each for each in said if any(p.kind in ("call", "result") for p in each.pieces)]


def calls(said):
    """Whether any tool is called: results of unknown calls alone are one group, however many."""
    return any(piece.kind == "call" for each in said for piece in each.pieces)


some_work = conversations(max_turns=4).map(only_work).filter(calls)
plans = st.fixed_dictionaries(
    {
        "work": some_work,
        "times": st.integers(5, 30),
        "batch": st.integers(1, 4),
        "trigger_at": st.sampled_from([3, 6, 20]),
    }
)


def longest_group(messages):
    return max((each.stop - each.start for each in group(messages)), default=0)


def most_tokens_of_a_group(messages):
    count = HeuristicTokenCounter().count
    groups = (messages[each.start : each.stop] for each in group(messages))
    return max(sum(map(count, members)) for members in groups)


def check_wrapper(plan, shape, provider):
    async def run():
        raw = InMemoryChatStorage()
        storage = SummarizingChatStorage(
            raw, LLMSummarizer(scripted_model), plan["trigger_at"], provider=provider
        )
        history, batch = render(repeated(plan["work"], plan["times"]), shape), plan["batch"]
        limit = 2 * plan["trigger_at"]
        # The newest exchange stays whole beside the one in progress.
        most = limit + max(2, limit // 4) + 2 * longest_group(history) + batch
        if provider is not None:  # results that share a message are one a message in Chat
            most *= max(len(each.pieces) for each in plan["work"])
        for start in range(0, len(history), batch):
            await storage.save_chat_messages(*IDS, history[start : start + batch])
            view = await storage.fetch_chat(*IDS)
            assert validate(view, provider) == [] if provider else True
            assert len(view) <= most
            if provider is None:
                assert torn(view, await raw.fetch_chat(*IDS)) == []

    asyncio.run(run())


def check_manager(work, shape, batch):
    async def run():
        provider = PROVIDERS[shape]
        manager = ConversationManager(
            InMemoryChatStorage(),
            LLMSummarizer(scripted_model, token_threshold=LIMIT),
            provider=provider,
        )
        turn = await manager.start_run(*IDS)
        messages = render(repeated(work, ROUNDS), shape)
        most = 2 * LIMIT + most_tokens_of_a_group(messages)
        for start in range(0, len(messages), batch):
            turn.add(messages[start : start + batch])
            if start // batch % 5 == 0:
                view = await turn.messages()
                assert validate(view, provider) == []
                assert turn.context_tokens <= most

    asyncio.run(run())


def examples(count):
    checks = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
    return settings(max_examples=count, deadline=None, suppress_health_check=checks)


def test_views_of_tool_work_are_valid_and_bounded():
    """Through the wrapper, each provider's work for each provider, and without one."""

    @examples(FEW)
    @given(
        plan=plans,
        shape=st.sampled_from(SHAPES),
        provider=st.sampled_from([None, *PROVIDERS.values()]),
    )
    def check(plan, shape, provider):
        check_wrapper({**plan, "times": min(plan["times"], 12)}, shape, provider)

    check()


@pytest.mark.parametrize("shape", matrix.params(SHAPES, always=["anthropic", "bedrock"]))
def test_runs_of_three_hundred_rounds_are_valid_and_bounded(shape):
    """Through the manager."""

    @examples(FEW_RUNS)
    @given(work=some_work, batch=st.integers(1, 4))
    def check(work, batch):
        check_manager(work, shape, batch)

    check()


@pytest.mark.soak
@pytest.mark.parametrize("provider", [None, *PROVIDERS.values()])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_thousand_agents_have_valid_and_bounded_views(shape, provider):
    """Long runs with tools, in each format and for each provider."""

    @examples(MANY)
    @given(plan=plans)
    def check(plan):
        check_wrapper(plan, shape, provider)

    check()


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES)
def test_a_hundred_runs_of_three_hundred_rounds_are_valid_and_bounded(shape):
    """100 runs of 300 rounds in each format."""

    @examples(MANY_RUNS)
    @given(work=some_work, batch=st.integers(1, 4))
    def check(work, batch):
        check_manager(work, shape, batch)

    check()
