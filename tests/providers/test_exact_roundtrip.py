"""From a provider's dicts to messages and back: the same dicts."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import providers
from agent_memory.errors import InvalidRequestError
from histories import SHAPES, conversations, render

FUNCTIONS = {
    "openai_chat": (providers.from_openai, providers.to_openai),
    "openai_responses": (providers.from_openai_responses, providers.to_openai_responses),
    "anthropic": (providers.from_anthropic, providers.to_anthropic),
    "bedrock": (providers.from_bedrock, providers.to_bedrock),
}
AIRLINE = Path(__file__).parents[3] / "shared" / "data" / "airline.jsonl"
FUNCTION = {"name": "f", "arguments": '{"a": 1}'}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}

CHAT = [
    {"role": "developer", "content": "be brief", "name": "ops"},
    {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url",
        "image_url": {"url": "https://example.org/a.png", "detail": "low"}}]},
    {"role": "user", "content": [{"type": "input_audio",
        "input_audio": {"data": "AAAA", "format": "wav"}}, {"type": "file",
        "file": {"file_id": "file-1"}}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "3"}]},
    {"role": "assistant", "tool_calls": [{"id": "c2", "type": "custom",
        "custom": {"name": "g", "input": "free text"}}]},
    {"role": "tool", "tool_call_id": "c2", "content": ""},
    {"role": "assistant", "content": "", "reasoning_content": "hm", "annotations": []},
    {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "assistant", "content": None, "function_call": FUNCTION},
    {"role": "user", "content": [], "x-unknown": {"deep": [1, 2.5, None, True]}},
]  # fmt: skip
RESPONSES = [
    {"role": "user", "content": "hello"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "h"}], "encrypted_content": "AAAA"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}",
        "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": [
        {"type": "input_text", "text": "3"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed",
        "action": {"type": "search", "query": "x"}},
    {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "free"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
    {"type": "mcp_approval_request", "id": "m1", "name": "h", "arguments": "{}",
        "server_label": "s"},
    {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": True},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "done", "annotations": []},
                    {"type": "refusal", "refusal": "but"}]},
    {"type": "item_reference", "id": "msg_0"},
    {"type": "additional_tools", "role": "developer", "tools": []},
    {"type": "something_new", "content": [1], "role": "nobody"},
]  # fmt: skip
ANTHROPIC = [
    {"role": "user", "content": "hello"},
    {"role": "user", "content": [{"type": "text", "text": "a",
        "cache_control": {"type": "ephemeral"}}, {"type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "AAAA"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "3"}]},
        {"type": "text", "text": "go on"}]},
    {"role": "assistant", "content": []},
    {"role": "user", "content": [{"type": "something_new", "x": 1}]},
]  # fmt: skip
BEDROCK = [
    {"role": "user", "content": [{"text": "a"}, {"image": {"format": "png",
        "source": {"bytes": b"\x00\xff"}}}, {"cachePoint": {"type": "default"}}]},
    {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": b"\x01"}},
        {"text": ""}, {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"n": 1.5}}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "status": "error",
        "content": [{"json": {"a": [1]}}, {"document": {"format": "pdf", "name": "d",
        "source": {"bytes": b"%PDF"}}}]}}]},
    {"role": "assistant", "content": []},
    {"role": "user", "content": [{"video": {"format": "mp4", "source": {"bytes": b""}}},
        {"guardContent": {"text": {"text": "g"}}}, {"somethingNew": {"x": 1}}]},
]  # fmt: skip
SAMPLES = {
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "bedrock": BEDROCK,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_c34_all_kinds_of_messages_come_back_exactly(shape):
    """Every kind of block, keys that are present with null, and keys that are absent."""
    load, dump = FUNCTIONS[shape]
    given_ = copy.deepcopy(SAMPLES[shape])
    returned = dump(load(given_))
    assert returned == given_ == SAMPLES[shape]
    assert [list(each) for each in map(sorted, returned)] == [sorted(each) for each in given_]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_back_may_be_edited(shape):
    """Plain dicts and lists, which share nothing with the messages."""
    load, dump = FUNCTIONS[shape]
    messages = load(SAMPLES[shape])
    first = dump(messages)
    for each in first:
        each["added"] = True
        if isinstance(each.get("content"), list):
            each["content"].append("x")
    assert dump(messages) == SAMPLES[shape]


@given(said=conversations(), shape=st.sampled_from(SHAPES))
def test_random_histories_come_back_exactly(said, shape):
    """To dicts, to messages, to dicts."""
    load, dump = FUNCTIONS[shape]
    dicts = dump(render(said, shape))
    assert dump(load(dicts)) == dicts


def test_the_airline_conversations_come_back_exactly():
    """Real conversations, 1,064 messages in OpenAI's form."""
    if not AIRLINE.exists():
        pytest.skip("the airline conversations are not beside this checkout")
    lines = AIRLINE.read_text(encoding="utf-8").splitlines()
    chats = [json.loads(line)["messages"] for line in lines]
    assert sum(map(len, chats)) == 1064
    for chat in chats:
        assert providers.to_openai(providers.from_openai(chat)) == chat


def test_c06_fields_beside_role_and_content_are_extra():
    """They are kept, and where one looks for them."""
    (message,) = providers.from_openai([CHAT[3]])
    assert message.content is None
    assert message.extra == {"tool_calls": [CALL], "refusal": None}


def test_responses_items_get_the_role_of_who_makes_them():
    """Calls and reasoning are the assistant's, outputs the tool's."""
    roles = [message.role.value for message in providers.from_openai_responses(RESPONSES)]
    assert roles == [
        "user", "user", "assistant", "assistant", "tool", "assistant", "assistant", "tool",
        "assistant", "tool", "assistant", "assistant", "developer", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_message_is_refused_by_its_index(shape):
    """The error says which item is wrong."""
    load, _ = FUNCTIONS[shape]
    good = {"role": "user", "content": []}
    for bad in (7, None, "text", {"content": "x"}, {"role": "king", "content": "x"}):
        with pytest.raises(InvalidRequestError, match="message 1"):
            load([good, bad])
    with pytest.raises(InvalidRequestError, match="list of messages"):
        load(good)
