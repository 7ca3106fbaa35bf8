"""Tests of how the summarizer fares when the model fails."""

from __future__ import annotations

import asyncio

import pytest
from chats import chat, run_of

import model_server as scripted
from agent_memory.errors import (
    InvalidSummaryError,
    SummarizerError,
    SummarizerTimeoutError,
)
from agent_memory.messages import Usage
from agent_memory.models.chat_model import (
    BlankAnswerError,
    Completion,
    ContextOverflowError,
    ModelError,
    RefusedError,
    TruncatedAnswerError,
)
from agent_memory.summarizers import LLMSummarizer
from agent_memory.summarizers.base import summary_body


@pytest.mark.parametrize(
    "step",
    [
        scripted.rate_limited(),
        scripted.failing(500),
        scripted.dropped(),
        scripted.bad_json(),
        scripted.empty_object(),
        scripted.answer("  \n"),
    ],
)
async def test_c45_what_may_pass_is_asked_again(server, make, time, step):
    """Two failures of a passing kind, then an answer: the summary is made."""
    server.script(step, step, scripted.answer("At last."))
    result = await make().summarize(chat(8), 10)
    assert summary_body(result.summary[0]) == "At last."
    assert time.slept == [1.0, 2.0]


async def test_c45_the_providers_wait_is_kept(server, make, time):
    """retry-after goes before the back-off."""
    server.script(scripted.rate_limited(retry_after=17), scripted.answer("ok"))
    await make().summarize(chat(8), 10)
    assert time.slept == [17.0]


async def test_c45_attempts_are_bounded(server, make, time):
    """After the last attempt the typed error is raised, and nothing else happens."""
    server.default = scripted.failing(503)
    with pytest.raises(ModelError) as caught:
        await make(retry=time.retry(attempts=3)).summarize(chat(8), 10)
    assert caught.value.transient
    assert len(server.requests) == 3


async def test_c45_time_is_bounded(server, make, time):
    """A provider that asks for more patience than there is is not waited for."""
    server.script(scripted.rate_limited(retry_after=600))
    with pytest.raises(ModelError):
        await make(retry=time.retry(give_up_after=60)).summarize(chat(8), 10)
    assert time.slept == []


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (scripted.unauthorized(), ModelError),
        (scripted.out_of_quota(), ModelError),
        (scripted.refused(), RefusedError),
        (scripted.filtered(), RefusedError),
    ],
)
async def test_c45_what_cannot_pass_is_not_asked_again(server, make, step, error):
    """A wrong key, a used-up quota or a refusal is raised at once, typed."""
    server.script(step)
    with pytest.raises(error) as caught:
        await make().summarize(chat(8), 10)
    assert isinstance(caught.value, SummarizerError)
    assert len(server.requests) == 1


async def test_c45_a_request_that_hangs_times_out(server, make, time, loop_clock):
    """Each attempt has its limit of time; the error is a time-out."""
    server.hold = asyncio.Event()
    summarizer = make(timeout=60, retry=time.retry(attempts=2))
    asking = asyncio.ensure_future(summarizer.summarize(chat(8), 10))
    for attempt in (1, 2):
        await server.reached(attempt)
        loop_clock.advance(60)
    with pytest.raises(SummarizerTimeoutError):
        await asking
    assert len(server.requests) == 2


async def test_c45_a_truncated_answer_gets_twice_the_room_once(server, make):
    """Half a summary is none: it is asked for again with more room."""
    server.script(scripted.truncated(), scripted.answer("Whole."))
    result = await make(max_summary_tokens=100).summarize(chat(8), 10)
    assert summary_body(result.summary[0]) == "Whole."
    limits = [
        request.body.get("max_completion_tokens") or request.body.get("max_output_tokens")
        for request in server.requests
    ]
    assert limits == [200, 400]
    assert result.usage == server.reported


async def test_c45_an_answer_truncated_twice_is_an_error(server, make):
    """It is not asked for a third time, and tells what it cost."""
    server.default = scripted.truncated()
    with pytest.raises(TruncatedAnswerError) as caught:
        await make().summarize(chat(8), 10)
    assert len(server.requests) == 2
    assert caught.value.usage == server.reported


async def test_c45_a_window_smaller_than_said_takes_smaller_pieces(server, make):
    """When the provider finds the request too long, it is sent in pieces; nothing is lost."""
    history = [
        m for at in range(40) for m in run_of(f"r{at}", f"fact-{at} " + "word " * 150, "ok")
    ]
    server.window = 4_000
    result = await make().summarize(history, 10)
    assert summary_body(result.summary[0]) == "The summary."
    accepted = [r.transcript for r in server.requests if r.tokens <= 4_000]
    for at in range(35):
        assert sum(f"fact-{at} " in text for text in accepted) == 1
    assert result.usage == server.reported


async def test_c45_a_window_too_small_for_anything_is_an_error(server, make):
    """Halving has an end."""
    server.window = 10
    with pytest.raises(ContextOverflowError):
        await make().summarize(chat(8), 10)


@pytest.mark.parametrize("step", [scripted.answer(""), scripted.answer(" ", reasoning=500)])
async def test_c46_a_blank_answer_is_a_failure(server, make, step):
    """Nothing, or reasoning alone, is no summary; its cost is on the error."""
    server.default = step
    with pytest.raises(BlankAnswerError) as caught:
        await make().summarize(chat(8), 10)
    assert isinstance(caught.value, InvalidSummaryError)
    assert caught.value.usage == server.reported


async def test_a_cancelled_summary_stops(server, make):
    """The caller's cancellation is no failure to be retried."""
    server.hold = asyncio.Event()
    task = asyncio.ensure_future(make().summarize(chat(8), 10))
    await server.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.requests) == 1


async def test_a_plain_function_may_raise_anything(time):
    """An SDK's own exception is told apart by its status and retried like others."""

    class OverloadedError(Exception):
        status_code = 529

    calls = []

    async def ask(instruction, transcript, **parameters):
        calls.append(transcript)
        if len(calls) < 3:
            raise OverloadedError("busy")
        return "Made by hand."

    result = await LLMSummarizer(ask, retry=time.retry()).summarize(chat(8), 10)
    assert summary_body(result.summary[0]) == "Made by hand."
    assert result.usage is None


async def test_a_function_that_returns_nonsense_is_an_error(time):
    """What is neither a text nor a Completion is a typed failure."""

    async def ask(instruction, transcript, **parameters):
        return 5

    with pytest.raises(ModelError, match="int"):
        await LLMSummarizer(ask, retry=time.retry()).summarize(chat(8), 10)


async def test_c75_the_cost_of_plain_text_is_unknown(time):
    """A model function that returns text alone says nothing of its cost: None, never zero."""
    answers = iter(["", "one", "two", "three", "four"])

    async def ask(instruction, transcript, **parameters):
        return next(answers)

    small = {"max_input_tokens": 1_300, "max_summary_tokens": 100}
    result = await LLMSummarizer(ask, retry=time.retry(), **small).summarize(chat(80), 10)
    assert next(answers) == "four"  # in pieces, and one answer was blank
    assert result.usage is None


async def test_c75_one_unknown_cost_makes_the_sum_unknown(time):
    """Of two pieces one reported its cost: their sum is not known."""
    answers = iter([Completion("one", Usage(10, 1)), Completion("two")])

    async def ask(instruction, transcript, **parameters):
        return next(answers, Completion("more", Usage(10, 1)))

    small = {"max_input_tokens": 1_300, "max_summary_tokens": 100}
    result = await LLMSummarizer(ask, retry=time.retry(), **small).summarize(chat(80), 10)
    assert next(answers, None) is None
    assert result.usage is None
