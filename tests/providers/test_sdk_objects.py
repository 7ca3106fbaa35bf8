"""The SDKs' own objects are taken as they are."""

from __future__ import annotations

import pytest

from agent_memory.messages import Usage
from agent_memory.providers import (
    from_anthropic,
    from_openai,
    from_openai_responses,
    to_anthropic,
    to_openai,
    to_openai_responses,
)


def test_chat_completion_messages():
    """A reply of the openai client goes back as it came."""
    chat = pytest.importorskip("openai.types.chat")
    sent = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    }
    reply = chat.ChatCompletionMessage.model_validate(sent)
    assert to_openai(from_openai([reply, {"role": "user", "content": "x"}]))[0] == sent


def test_responses_output_items():
    """So do the items of a response."""
    responses = pytest.importorskip("openai.types.responses")
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc"}
    text = {"type": "output_text", "text": "hi", "annotations": []}
    said = {
        "type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [text],
    }  # fmt: skip
    items = [
        responses.ResponseFunctionToolCall.model_validate(call),
        responses.ResponseOutputMessage.model_validate(said),
    ]
    assert to_openai_responses(from_openai_responses(items)) == [call, said]


def anthropic_reply():
    types = pytest.importorskip("anthropic.types")
    return types.Message.model_validate({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "stop_reason": "tool_use", "stop_sequence": None,
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3},
    })  # fmt: skip


def test_anthropic_content_within_a_dict():
    """``{"role": "assistant", "content": reply.content}`` is what people append."""
    content = anthropic_reply().content
    (written,) = to_anthropic(from_anthropic([{"role": "assistant", "content": content}]))
    assert written["content"] == [
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]


def test_an_anthropic_reply_is_reduced_to_what_may_be_sent():
    """The API refuses id, model and usage in a request; the usage is kept where it belongs."""
    (message,) = from_anthropic([anthropic_reply()])
    assert set(to_anthropic([message])[0]) == {"role", "content"}
    assert message.usage == Usage(input_tokens=8, output_tokens=7, cached_tokens=3)
