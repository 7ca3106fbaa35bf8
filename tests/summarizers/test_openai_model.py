"""Tests of the OpenAI model: the real client against a scripted server."""

from __future__ import annotations

import asyncio
import sys

import openai
import pytest

import model_server as scripted
from agent_memory.errors import (
    InvalidRequestError,
    InvalidSummaryError,
    MissingDependencyError,
    SummarizerError,
    SummarizerTimeoutError,
)
from agent_memory.messages import Usage
from agent_memory.models.chat_model import (
    Completion,
    ContextOverflowError,
    ModelError,
    RefusedError,
    TruncatedAnswerError,
    as_chat_model,
    as_model_error,
)
from agent_memory.models.openai import OpenAIChatModel

APIS = ["chat", "responses"]


@pytest.fixture(params=APIS)
def model(request, server):
    return OpenAIChatModel(server.client(), "test-model", api=request.param)


async def test_instruction_and_transcript_reach_the_model(server, model):
    """The instruction goes as system prompt, the transcript as the user's words, both as is."""
    completion = await model.complete("Be {brief}.", "<conversation>ü</conversation>")
    assert completion.text == "The summary."
    request = server.requests[0]
    assert request.instruction == "Be {brief}."
    assert request.transcript == "<conversation>ü</conversation>"
    assert request.body["model"] == "test-model"


async def test_parameters_are_passed_on(server, model):
    """Parameters reach the provider, the limit of the answer under the name it has there."""
    await model.complete("i", "t", temperature=0.25, max_output_tokens=321)
    body = server.requests[0].body
    assert body["temperature"] == 0.25
    name = "max_completion_tokens" if server.requests[0].api == "chat" else "max_output_tokens"
    assert body[name] == 321


async def test_the_limit_can_have_its_older_name(server):
    """Older compatible servers know the limit as max_tokens."""
    model = OpenAIChatModel(server.client(), "m", token_limit_name="max_tokens")
    await model.complete("i", "t", max_output_tokens=5)
    assert server.requests[0].body["max_tokens"] == 5


async def test_c51_usage_is_what_the_server_reported(server, model):
    """Input, output, cached and reasoning tokens are taken over."""
    server.script(scripted.answer("yes", reasoning=30, cached=2))
    usage = (await model.complete("i", "t")).usage
    assert usage == server.reported
    assert usage.reasoning_tokens == 30
    assert usage.cached_tokens == 2


async def test_c46_reasoning_before_the_text_does_not_count(server, model):
    """The text alone is the answer."""
    server.script(scripted.answer("Just this.", reasoning=50))
    assert (await model.complete("i", "t")).text == "Just this."


async def test_c46_reasoning_written_into_the_text_is_taken_off(server):
    """Open models behind compatible servers think aloud first."""
    server.script(scripted.answer("<think>\nhm\n</think>\n\nJust this."))
    model = OpenAIChatModel(server.client(), "m")
    assert (await model.complete("i", "t")).text == "Just this."


async def test_an_answer_without_text_is_an_empty_text(server, model):
    """Blank is told by the summarizer, not hidden here."""
    server.script(lambda request: scripted.Reply(text=None))
    assert (await model.complete("i", "t")).text == ""


@pytest.mark.parametrize(
    ("step", "error", "transient"),
    [
        (scripted.rate_limited(), ModelError, True),
        (scripted.failing(500), ModelError, True),
        (scripted.failing(503), ModelError, True),
        (scripted.out_of_quota(), ModelError, False),
        (scripted.unauthorized(), ModelError, False),
        (scripted.failing(404, "no such model"), ModelError, False),
        (scripted.failing(400, "temperature must be below 2"), ModelError, False),
        (scripted.overflow(), ContextOverflowError, False),
        (scripted.failing(413, "Request too large"), ContextOverflowError, False),
        (scripted.dropped(), ModelError, True),
        (scripted.bad_json(), ModelError, True),
        (scripted.empty_object(), ModelError, True),
        (scripted.refused(), RefusedError, False),
        (scripted.filtered(), RefusedError, False),
        (scripted.truncated(), TruncatedAnswerError, False),
    ],
)
async def test_c45_failures_are_typed(server, model, step, error, transient):
    """Every way to fail has its type, and says whether it may pass."""
    server.script(step)
    with pytest.raises(SummarizerError) as caught:
        await model.complete("i", "t")
    assert type(caught.value) is error
    assert caught.value.transient is transient
    assert len(server.requests) == 1


@pytest.mark.parametrize(("code", "transient"), [("server_error", True), ("bio_policy", False)])
async def test_c45_a_failed_response_is_typed(server, code, transient):
    """Responses may fail with status 200."""
    server.script(scripted.failed(code))
    with pytest.raises(ModelError) as caught:
        await OpenAIChatModel(server.client(), "m", "responses").complete("i", "t")
    assert caught.value.transient is transient


async def test_c45_the_time_to_wait_is_told(server, model):
    """A provider's retry-after comes with the error, the SDK's own retries being off."""
    server.script(scripted.rate_limited(retry_after=7))
    with pytest.raises(ModelError) as caught:
        await model.complete("i", "t")
    assert caught.value.retry_after == 7
    assert len(server.requests) == 1


@pytest.mark.parametrize("header", ["Wed, 21 Oct 2026 07:28:00 GMT", "-5", "nan", "inf"])
async def test_c45_a_time_that_is_none_is_ignored(server, model, header):
    """A date or nonsense leaves the wait to the back-off."""
    server.script(scripted.rate_limited(retry_after=header))
    with pytest.raises(ModelError) as caught:
        await model.complete("i", "t")
    assert caught.value.retry_after is None


async def test_c45_a_refusal_tells_its_cost(server, model):
    """What a useless answer cost is on the error."""
    server.script(scripted.refused())
    with pytest.raises(RefusedError) as caught:
        await model.complete("i", "t")
    assert caught.value.usage == server.reported != Usage()


async def test_c45_a_client_that_times_out(server, model, loop_clock):
    """The SDK's own time-out is a time-out of the summarizer."""
    server.hold = asyncio.Event()
    slow = OpenAIChatModel(server.client(timeout=60), "m")
    asking = asyncio.ensure_future(slow.complete("i", "t"))
    await server.reached(1)
    while not asking.done():  # the client sets its timer a few steps after it has sent
        loop_clock.advance(60)
        await asyncio.sleep(0)
    with pytest.raises(SummarizerTimeoutError) as caught:
        await asking
    assert caught.value.transient


async def test_no_client_means_one_from_the_environment(server, monkeypatch):
    """Without a client each answer brings its own, which is closed again."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    assert (await OpenAIChatModel(None, "m").complete("i", "t")).text == "The summary."
    assert server.requests[0].headers["authorization"] == "Bearer from-env"


async def test_no_key_in_the_environment_is_a_typed_error(monkeypatch):
    """A missing key is a failure of the model, not an exception of the SDK."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        await OpenAIChatModel(None, "m").complete("i", "t")


def test_wrong_arguments_are_refused():
    """A blocking client or an unknown API is an error at once."""
    with openai.OpenAI(api_key="k") as blocking, pytest.raises(InvalidRequestError, match="Async"):
        OpenAIChatModel(blocking, "m")
    with pytest.raises(InvalidRequestError, match="api"):
        OpenAIChatModel(None, "m", api="assistants")


def test_a_missing_package_names_the_extra(monkeypatch):
    """Without the SDK the error says what to install."""
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "agent_memory.models.openai")
    with pytest.raises(MissingDependencyError, match=r"\[openai\]"):
        import agent_memory.models.openai  # noqa: F401, PLC0415


async def test_an_async_function_is_a_model():
    """Any provider comes in with three lines; a plain text is an answer without figures."""

    async def ask(instruction, transcript, **parameters):
        return f"{instruction}|{transcript}|{parameters}"

    answer = await as_chat_model(ask).complete("i", "t", a=1)
    assert answer == Completion("i|t|{'a': 1}")


def test_what_is_no_model_is_refused():
    """Neither a method nor a function: an error at once."""
    with pytest.raises(InvalidRequestError, match="complete"):
        as_chat_model("gpt")


class _StatusError(Exception):
    def __init__(self, status):
        super().__init__("sdk")
        self.status_code = status


class _ClientError(Exception):
    def __init__(self):
        super().__init__("botocore")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": 503}}


class ReadTimeoutError(Exception):
    """Named as an SDK's time-out."""


class EndpointConnectionError(Exception):
    """Named as botocore's."""


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (_StatusError(529), True),
        (_StatusError(400), False),
        (_ClientError(), True),
        (ReadTimeoutError(), True),
        (EndpointConnectionError(), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (ValueError("bug"), False),
    ],
)
def test_other_sdks_errors_are_told_apart(error, transient):
    """The status an SDK's exception carries decides, else its kind."""
    translated = as_model_error(error)
    assert translated.transient is transient
    assert translated.__cause__ is error
    assert not isinstance(translated, InvalidSummaryError)


# ---------------------------------------------------------------------------- content in parts

_TEXT = {"type": "text", "text": "Room 12 "}
_MORE = {"type": "text", "text": "is booked."}
_THINKING = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "reasoning", "text": "hm"},
    {"type": "reasoning_content", "reasoning_content": {"text": "hm"}},
]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([*_THINKING, _TEXT], "Room 12 "),
        ([_TEXT, _MORE], "Room 12 is booked."),
        ([_TEXT, {"type": "image_url", "image_url": {"url": "x"}}, _MORE], "Room 12 is booked."),
        ([{"type": "text", "text": "<think>hm</think>"}, _TEXT], "Room 12 "),
        ([_TEXT, {"type": "refusal", "refusal": ""}], "Room 12 "),
    ],
)
async def test_c70_the_answer_may_be_a_list_of_parts(server, content, expected):
    """Texts are joined; reasoning and what is no text is left out."""
    server.script(scripted.parts(*content))
    completion = await OpenAIChatModel(server.client(), "m").complete("i", "t")
    assert completion == Completion(expected, Usage(20, 10))


async def test_c70_a_refusal_may_be_a_part(server):
    """A refusal among the parts is the typed error, with what it cost."""
    server.script(scripted.parts(_TEXT, {"type": "refusal", "refusal": "I cannot."}))
    with pytest.raises(RefusedError, match="I cannot") as caught:
        await OpenAIChatModel(server.client(), "m").complete("i", "t")
    assert caught.value.usage == Usage(20, 10)
    assert not caught.value.transient


class _Block:
    """A part as an SDK gives it."""

    def __init__(self, **fields):
        vars(self).update(fields)


@pytest.mark.parametrize(
    "content",
    [
        [_TEXT, _MORE],
        (_TEXT, _MORE),
        [_Block(type="thinking", thinking="hm"), _Block(type="text", text="Room 12 is booked.")],
        [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "Room 12 is booked."}],
        ["Room 12 ", "is booked."],
    ],
)
async def test_c70_a_function_may_return_the_content_of_any_provider(content):
    """Dicts and objects; alone or as the text of a Completion."""

    async def alone(instruction, transcript):
        return list(content)

    async def completed(instruction, transcript):
        return Completion(content, Usage(1, 2))

    assert await as_chat_model(alone).complete("i", "t") == Completion("Room 12 is booked.")
    assert (await completed("i", "t")) == Completion("Room 12 is booked.", Usage(1, 2))


def test_c70_a_completion_tells_a_refusal_from_text():
    """A refusal is raised where the answer is made, and what is no text is named."""
    with pytest.raises(RefusedError) as caught:
        Completion([{"type": "refusal", "refusal": "no"}], Usage(3, 4))
    assert caught.value.usage == Usage(3, 4)
    with pytest.raises(ModelError, match="not int"):
        Completion(7)
    assert Completion(None).text == ""


async def test_c75_a_server_that_reports_nothing_costs_nobody_knows(server):
    """Some compatible servers report no usage: that is no cost of zero."""
    server.script(scripted.parts(_TEXT, reported=False))
    completion = await OpenAIChatModel(server.client(), "m").complete("i", "t")
    assert completion.usage is None
