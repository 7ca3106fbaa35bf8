"""Tests of what the summarizer sends, makes and costs at most."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from chats import chat, former_summary, run_of

import model_server as scripted
from agent_memory.messages import Usage
from agent_memory.models.chat_model import (
    RefusedError,
)
from agent_memory.providers import from_openai, reshape, text_of
from agent_memory.summarizers.base import summary_body
from agent_memory.tokens import estimate_text_tokens
from agent_memory.turns import group


async def test_c43_the_summary_stays_bounded(server, make, caplog):
    """A model that repeats the old summary and adds to it, 100 times, stays within the limit."""

    def hoarding(request):
        old = request.transcript.partition("<previous_summary>\n")[2]
        old = old.partition("\n</previous_summary>")[0]
        added = f"note {len(server.requests)}: " + "and more of the same " * 10
        return scripted.Reply(f"{old}\n{added}".strip())

    server.default = hoarding
    summarizer = make(max_summary_tokens=200, keep_recent_count=1)
    view = chat(1)
    with caplog.at_level(logging.WARNING):
        for at in range(100):
            view += run_of(f"x{at}", f"question {at}", "answer")
            view = (await summarizer.summarize(view, 10)).messages
            assert estimate_text_tokens(summary_body(view[0])) <= 200
            assert len(view) == 3
    assert "note 100" in text_of(view[0])
    assert "max_summary_tokens=200" in caplog.text


async def test_c48_a_long_history_is_folded_in_pieces(server, make):
    """50,000 tokens through a window of 8,000: each request fits, nothing is skipped."""
    server.window = 8_000
    words = "the survey of the northern cliff went on in the rain and the wind "
    history = [
        m for at in range(65) for m in run_of(f"r{at}", f"[fact {at:03d}] " + words * 60, "noted")
    ]
    assert sum(estimate_text_tokens(m.content) for m in history) > 50_000
    result = await make(max_input_tokens=8_000).summarize(history, 60_000)
    assert all(request.tokens <= 8_000 for request in server.requests)
    transcripts = [request.transcript for request in server.requests]
    for at in range(60):
        assert sum(f"[fact {at:03d}]" in text for text in transcripts) == 1
    assert sum(text.count(words.strip()) for text in transcripts) >= 60 * 58
    assert result.usage == server.reported


async def test_c48_each_piece_updates_the_summary_of_those_before(server, make):
    """The summary made so far goes along with the next piece."""
    server.default = lambda request: scripted.Reply(f"notes {len(server.requests)}")
    history = [m for at in range(30) for m in run_of(f"r{at}", "word " * 400, "ok")]
    result = await make(max_input_tokens=4_000).summarize(history, 10)
    assert len(server.requests) > 2
    for at, request in enumerate(server.requests[1:], start=1):
        assert f"<previous_summary>\nnotes {at}\n" in request.transcript
        assert f'<conversation part="{at + 1} of {len(server.requests)}">' in request.transcript
    assert summary_body(result.summary[0]) == f"notes {len(server.requests)}"


async def test_c48_a_failure_half_way_changes_nothing_and_tells_its_cost(server, make):
    """When a later piece fails for good, the error carries what all pieces cost."""
    server.script(scripted.answer("one"), scripted.answer("two"), scripted.refused())
    history = [m for at in range(30) for m in run_of(f"r{at}", "word " * 400, "ok")]
    with pytest.raises(RefusedError) as caught:
        await make(max_input_tokens=4_000).summarize(history, 10)
    assert caught.value.usage == server.reported
    assert len(server.requests) == 3


async def test_a_former_summary_too_long_to_carry_is_folded_in(server, make):
    """A foreign summary longer than the window is read in pieces like everything else."""
    former = " ".join(f"item-{at}" for at in range(3_000))
    await make(max_input_tokens=4_000).summarize([former_summary(former), *chat(8)], 10)
    sent = " ".join(request.transcript for request in server.requests)
    assert all(request.tokens <= 4_000 for request in server.requests)
    # An item may lie on the border between two pieces; its neighbours never do.
    assert sum(f"item-{at} " in sent for at in range(3_000)) > 2_980


async def test_c51_failed_attempts_cost_too(server, make):
    """The usage on the result is everything the server reported, blank answers included."""
    server.script(scripted.answer(" ", reasoning=70), scripted.answer("Good.", cached=3))
    result = await make().summarize(chat(8), 10)
    assert result.usage == server.reported
    assert result.usage.reasoning_tokens == 70


async def test_nothing_of_the_chat_is_logged(server, make, caplog):
    """Failures and shortenings are logged without what was said."""
    server.script(scripted.failing(500, "echo: MY SECRET"), scripted.answer("MY SECRET " * 500))
    with caplog.at_level(logging.INFO, logger="agent_memory"):
        await make(max_summary_tokens=50).summarize(run_of("r0", "MY SECRET", "k") + chat(6), 9)
    assert caplog.records
    assert "SECRET" not in caplog.text


_AIRLINE = Path(__file__).parents[3] / "shared/data/airline.jsonl"


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
    """Real chats with tool calls: what is kept is raw and whole, and the usage adds up."""
    spent = Usage()
    summarizer = make(keep_recent_count=2)
    for line in _AIRLINE.read_text(encoding="utf-8").splitlines():
        history = _in_shape(json.loads(line)["messages"], shape)
        result = await summarizer.summarize(history, 10)
        if result is None:
            continue
        kept = list(result.messages_to_keep)
        assert history[-len(kept) :] == kept
        assert len(history) - len(kept) in {part.start for part in group(history)}
        assert summary_body(result.summary[0]) == "The summary."
        spent += result.usage
    assert len(server.requests) > 30
    assert spent == server.reported
    assert not any("toolUse" in request.transcript for request in server.requests)


def _in_shape(plain, shape):
    messages = from_openai(plain)
    if shape == "openai":
        return messages
    return list(reshape(messages, shape).messages)
