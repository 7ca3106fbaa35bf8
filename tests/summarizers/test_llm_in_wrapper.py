"""Tests of the model's summaries where they are used: behind a summarizing store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chats import chat

import model_server as scripted
from agent_memory.messages import Usage
from agent_memory.providers import from_openai, repair, reshape, text_of, validate
from agent_memory.storage.in_memory import InMemoryChatStorage
from agent_memory.summarizers import ExtractiveSummarizer, LLMSummarizer
from agent_memory.summarizers.base import SUMMARY_TITLE, is_summary, summary_body
from agent_memory.summarizing.storage import SummarizingChatStorage

_AIRLINE = Path(__file__).parents[3] / "shared/data/airline.jsonl"
_KEY = ("u", "s", "a")


async def _saved(storage, messages):
    """Save one after the other, as a chat goes, and return the view."""
    await storage.fetch_chat(*_KEY)
    for message in messages:
        await storage.save_chat_message(*_KEY, message)
        await storage.fetch_chat(*_KEY)
    return await storage.fetch_chat(*_KEY)


async def test_the_view_is_summary_and_newest_runs(server, make):
    """The model's summary stands for the older runs; all raw messages are still stored."""
    history = chat(9)
    summarizer = make(keep_recent_count=2)
    async with SummarizingChatStorage(
        InMemoryChatStorage(), summarizer, trigger_at=4, keep_last=1
    ) as storage:
        view = await _saved(storage, history)
        raw = await storage.fetch_all_chats(*_KEY[:2])
    assert raw == history
    assert is_summary(view[0])
    assert text_of(view[0]).startswith(f"{SUMMARY_TITLE} (")
    assert summary_body(view[0]) == "The summary."
    assert view[1:] == history[-len(view) + 1 :]
    assert len(view) <= 8


async def test_c51_the_cost_is_on_the_record(server, make):
    """What each summary cost is kept beside it, and adds up to what the server reported."""
    async with SummarizingChatStorage(
        InMemoryChatStorage(), make(keep_recent_count=2), trigger_at=4, keep_last=1
    ) as storage:
        await _saved(storage, chat(20))
        records = await storage.compaction_history(*_KEY)
    assert len(records) > 2
    assert sum((record.usage for record in records), Usage()) == server.reported
    assert {record.summarizer for record in records} == {"LLMSummarizer"}


async def test_each_summary_updates_the_one_before(server, make):
    """From the second on, the model is given the last summary as the notes so far."""
    server.default = lambda request: scripted.Reply(f"notes {len(server.requests)}")
    async with SummarizingChatStorage(
        InMemoryChatStorage(), make(keep_recent_count=2), trigger_at=4, keep_last=1
    ) as storage:
        await _saved(storage, chat(20))
    for at, request in enumerate(server.requests[1:], start=1):
        assert f"<previous_summary>\nnotes {at}\n</previous_summary>" in request.transcript
        assert "<previous_summary>" not in server.requests[0].transcript


async def test_c45_nothing_is_lost_while_the_model_is_down(server, make, time):
    """Failing summaries leave the view raw and every save a success."""
    server.default = scripted.failing(503)
    history = chat(9)
    summarizer = make(keep_recent_count=2, retry=time.retry(attempts=2))
    async with SummarizingChatStorage(
        InMemoryChatStorage(), summarizer, trigger_at=4, keep_last=1
    ) as storage:
        assert await _saved(storage, history) == history
    assert server.requests


async def test_the_extractive_summarizer_stands_in(server, make):
    """With a fallback the view stays short while the model refuses."""
    server.default = scripted.refused()
    async with SummarizingChatStorage(
        InMemoryChatStorage(),
        make(keep_recent_count=2),
        trigger_at=4,
        keep_last=1,
        fallback=ExtractiveSummarizer(max_sentences=3),
    ) as storage:
        view = await _saved(storage, chat(12))
        records = await storage.compaction_history(*_KEY)
    assert len(view) <= 8
    assert is_summary(view[0])
    assert {record.summarizer for record in records} == {"ExtractiveSummarizer"}


@pytest.mark.skipif(not _AIRLINE.exists(), reason="../shared/data/airline.jsonl is absent")
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        ("chat", "bedrock"),
        *(
            pytest.param(api, shape, marks=pytest.mark.matrix)
            for api, shape in (
                *(("chat", "openai"), ("chat", "anthropic")),
                *(("responses", "openai"), ("responses", "anthropic"), ("responses", "bedrock")),
            )
        ),
    ],
    indirect=["make"],
)
async def test_real_conversations_in_three_shapes(server, make, shape):
    """Views stay valid, every message is shown or covered, and the usage adds up."""
    spent = Usage()
    summarizer = make(keep_recent_count=2)
    for line in _AIRLINE.read_text(encoding="utf-8").splitlines():
        history = reshape(from_openai(json.loads(line)["messages"]), shape).messages
        async with SummarizingChatStorage(
            InMemoryChatStorage(), summarizer, trigger_at=4, keep_last=1
        ) as storage:
            view = await _saved(storage, history)
            records = await storage.compaction_history(*_KEY)
        shown = [message for message in view if message.position is not None]
        assert shown == [history[message.position - 1] for message in shown]
        covered = records[-1].covered.count if records else 0
        assert len(shown) + covered == len(history)
        assert validate(repair(view, shape), shape) == []
        spent += sum((record.usage for record in records), Usage())
    assert len(server.requests) > 20
    assert spent == server.reported


async def test_c75_an_unknown_cost_is_none_on_the_record():
    """A model function that returns plain text: the record's usage is None, not zero."""

    async def ask(instruction, transcript, **parameters):
        return "The summary."

    summarizer = LLMSummarizer(ask, keep_recent_count=1)
    async with SummarizingChatStorage(InMemoryChatStorage(), summarizer, 3, 1) as storage:
        await _saved(storage, chat(6))
        records = await storage.compaction_history(*_KEY)
    assert records
    assert {record.usage for record in records} == {None}
