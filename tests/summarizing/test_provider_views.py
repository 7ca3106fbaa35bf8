"""Random histories through the wrapper: every view is valid for the provider that will read it."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import matrix
from agent_memory import InMemoryChatStorage, SummarizingChatStorage
from agent_memory.providers import convert, validate
from agent_memory.testing import ScriptedSummarizer, blind_cut
from histories import SHAPES, histories, mixtures
from judge import faults
from rig import IDS, keep_from_the_middle, keep_none, rebuild_kept, torn, violations

PROVIDERS = ("openai", "openai_responses", "anthropic", "bedrock")
SOURCES = (*SHAPES, "mixed")
"""Histories in one provider's format, or each turn in another."""
FEW, MANY = 60, 10_000
JUDGED = 5
"""The judge is slow: it is asked about every fifth view."""

SUMMARIZERS = {
    "whole groups": ScriptedSummarizer,
    "blind slices": lambda: ScriptedSummarizer(cut=blind_cut),
    "keeps nothing": lambda: keep_none,
    "one from the middle": lambda: keep_from_the_middle,
    "rebuilds what it keeps": lambda: rebuild_kept,
}


def plans(source):
    """A history, how it is saved, and what summarizes it when."""
    turns = {"rare": True, "max_turns": 10}
    return st.fixed_dictionaries(
        {
            "history": mixtures(**turns) if source == "mixed" else histories(source, **turns),
            "batch": st.integers(1, 4),
            "trigger_at": st.integers(2, 5),
            "summarizer": st.sampled_from(sorted(SUMMARIZERS)),
            "limit": st.sampled_from([None, None, 3, 6]),
        }
    )


async def views_of(plan, provider, keep_last):
    """Save a history piece by piece; yield what was saved so far and the view after each."""
    raw = InMemoryChatStorage()
    summarizer = SUMMARIZERS[plan["summarizer"]]()
    storage = SummarizingChatStorage(
        raw, summarizer, plan["trigger_at"], keep_last, provider=provider
    )
    history, batch = plan["history"], plan["batch"]
    for start in range(0, len(history), batch):
        await storage.save_chat_messages(*IDS, history[start : start + batch])
        yield await raw.fetch_chat(*IDS), await storage.fetch_chat(*IDS, plan["limit"])


def check_valid(plan, provider, keep_last):
    async def run():
        known = own_faults(provider)
        number = 0
        async for _, view in views_of(plan, provider, keep_last):
            found = validate(view, provider)
            assert found == [], (plan, view)
            number += 1
            if number % JUDGED == 0:
                request = convert(view, provider)
                judged = faults(request.messages, provider, request.system)
                assert {fault.kind for fault in judged} <= known, (plan, view)

    asyncio.run(run())


def own_faults(provider):
    """What the judge says of the provider's own messages: what its SDK does not know comes back.

    That is Bedrock's ``toolUse.type``, which botocore of today lacks, and OpenRouter's
    ``cache_control`` and reasoning in Chat.
    """
    known = {
        "openai": ["content.[].cache_control: unknown key", "reasoning_content: unknown key"],
        "bedrock": [
            "content.[].toolUse.type: unknown key",
            "content.[].toolResult.type: unknown key",
        ],
    }
    return set(known.get(provider, []))


def check_paired(plan, keep_last):
    async def run():
        async for saved, view in views_of({**plan, "limit": None}, None, keep_last):
            assert torn(view, saved) == [], (plan, view)
            if plan["summarizer"] != "rebuilds what it keeps":
                assert violations(view, saved) == [], plan

    asyncio.run(run())


def examples(count):
    checks = (HealthCheck.too_slow, HealthCheck.data_too_large)
    return settings(max_examples=count, deadline=None, suppress_health_check=checks)


PAIRS = list(itertools.product(SOURCES, PROVIDERS))


@pytest.mark.parametrize(("source", "provider"), matrix.params(PAIRS, always=PAIRS[::3]))
def test_every_view_is_valid_for_its_provider(source, provider):
    """Whatever was saved and however it was summarized, the provider takes the view."""

    @examples(FEW // 6)
    @given(plan=plans(source), keep_last=st.just(1))
    def check(plan, keep_last):
        check_valid(plan, provider, keep_last)

    check()


@pytest.mark.parametrize("source", SOURCES)
def test_without_a_provider_pairing_is_as_valid_as_raw(source):
    """No summary leaves a call or a result alone that raw did not leave alone."""

    @examples(FEW // 2)
    @given(plan=plans(source), keep_last=st.just(1))
    def check(plan, keep_last):
        check_paired(plan, keep_last)

    check()


@pytest.mark.soak
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("source", SOURCES)
def test_ten_thousand_histories_are_valid_for_every_provider(source, provider):
    """10,000 histories in four formats and mixtures, for each provider."""

    @examples(MANY // len(SOURCES))
    @given(plan=plans(source), keep_last=st.just(1))
    def check(plan, keep_last):
        check_valid(plan, provider, keep_last)

    check()


@pytest.mark.soak
@pytest.mark.parametrize("source", SOURCES)
def test_views_without_a_provider_keep_calls_with_their_results(source):
    """10,000 histories in four formats and mixtures."""

    @examples(MANY // len(SOURCES))
    @given(plan=plans(source), keep_last=st.just(1))
    def check(plan, keep_last):
        check_paired(plan, keep_last)

    check()
