"""The judge of requests refuses what is wrong before it may accept what the library writes."""

from __future__ import annotations

import copy

import pytest
from anthropic.types import MessageParam
from openai.types.responses.response_input_param import ResponseInputItemParam

from judge import PROVIDERS, faults, members_of, tags_of

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL_USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
BEDROCK_USE = {"toolUseId": "t1", "name": "f", "input": {}}
OUTPUT_TEXT = {"type": "output_text", "text": "a", "annotations": []}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


PLANTED = [
    ("openai", {"role": "assistant", "content": "a", "annotations": []},
        "annotations: unknown key"),
    ("openai", {"role": "user", "content": "a", "refusal": None}, "refusal: unknown key"),
    ("openai", {"role": "tool", "content": "a"}, "tool_call_id: Field required"),
    ("openai", {"role": "tool", "tool_call_id": "c", "content": [
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}]},
        "content.[].type: Input should be 'text'"),
    ("openai", user({"type": "text", "text": "a", "cache_control": {}}),
        "content.[].cache_control: unknown key"),
    ("openai", user({"type": "input_text", "text": "a"}), "content.[]: unknown type input_text"),
    ("openai", {"role": "assistant", "tool_calls": [{**CALL, "function": {
        "name": "f", "arguments": {}}}]},
        "tool_calls.[].function.arguments: Input should be a valid string"),
    ("openai", {"role": "king", "content": "a"}, ": unknown type king"),
    ("openai_responses", {"role": "user", "content": "a", "name": "ann"}, "name: unknown key"),
    ("openai_responses", {"role": "tool", "content": "a"}, "role: Input should be"),
    ("openai_responses", {"type": "function_call", "name": "f", "arguments": "{}"},
        "call_id: Field required"),
    ("openai_responses", {"type": "function_call_output", "call_id": "c", "output": {"a": 1}},
        "output: Input should be a valid"),
    ("openai_responses", {"type": "tool_use", "id": "t1"}, ": unknown type tool_use"),
    ("openai_responses", user({"type": "text", "text": "a"}), "content.[]: unknown type text"),
    ("openai_responses", {"type": "reasoning", "id": "rs", "summary": [], "signature": "s"},
        "signature: unknown key"),
    ("anthropic", assistant({"type": "tool_use", "id": "t1", "name": "f"}),
        "content.[].input: Field required"),
    ("anthropic", assistant({"type": "thinking", "thinking": "hm"}),
        "content.[].signature: Field required"),
    ("anthropic", user({"type": "text", "text": "a", "annotations": []}),
        "content.[].annotations: unknown key"),
    ("anthropic", {"role": "user", "content": "a", "name": "ann"}, "name: unknown key"),
    ("anthropic", {"role": "assistant", "content": None}, "content: Input should be a valid"),
    ("anthropic", user({"type": "image_url", "image_url": {"url": "u"}}),
        "content.[]: unknown type image_url"),
    ("anthropic", user({"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "input_text", "text": "a"}]}), "content.[].content.[]: unknown type input_text"),
    ("bedrock", {"role": "user", "content": "a"}, "content: Invalid type"),
    ("bedrock", assistant({"toolUse": {"toolUseId": "t", "name": "f"}}),
        'content.[].toolUse: missing "input"'),
    ("bedrock", user({"type": "text", "text": "a"}), "content.[].type: unknown key"),
    ("bedrock", user({"text": "a", "toolUse": BEDROCK_USE}), "content.[]: Invalid number"),
    ("bedrock", user({"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}),
        "content.[].image.source.bytes: text where bytes belong"),
    ("bedrock", user({"document": {"format": "exe", "name": "d", "source": {"bytes": b"1"}}}),
        "content.[].document.format: 'exe' is none of the allowed values"),
    ("bedrock", {"role": "system", "content": [{"text": "a"}]},
        "role: 'system' is none of the allowed values"),
    ("bedrock", assistant({"toolUse": {**BEDROCK_USE, "toolUseId": "a b"}}),
        "content.[].toolUse.toolUseId: it does not match the pattern"),
    ("bedrock", assistant({"toolUse": {**BEDROCK_USE, "name": "f" * 65}}),
        "content.[].toolUse.name: longer than 64"),
]  # fmt: skip

RIGHT = [
    ("openai", {"role": "developer", "content": "be brief", "name": "ops"}),
    ("openai", user({"type": "text", "text": "a"}, {"type": "image_url",
        "image_url": {"url": "https://e.org/a.png", "detail": "low"}})),
    ("openai", user({"type": "file", "file": {"file_id": "file-1"}})),
    ("openai", {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}),
    ("openai", {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {
        "name": "f", "input": "free"}}]}),
    ("openai", {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": ""}]}),
    ("openai_responses", {"role": "user", "content": "a"}),
    ("openai_responses", {"type": "message", "id": "m", "role": "assistant",
        "status": "completed", "content": [OUTPUT_TEXT]}),
    ("openai_responses", {"type": "reasoning", "id": "rs", "summary": [],
        "encrypted_content": None}),
    ("openai_responses", {"type": "function_call", "call_id": "c", "name": "f",
        "arguments": "{}", "id": "fc", "status": "completed"}),
    ("openai_responses", {"type": "function_call_output", "call_id": "c", "output": [
        {"type": "input_image", "image_url": "https://e.org/a.png", "detail": "auto"}]}),
    ("openai_responses", {"id": "m"}),
    ("openai_responses", {"type": "compaction", "encrypted_content": "x"}),
    ("anthropic", {"role": "user", "content": "a"}),
    ("anthropic", user({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}})),
    ("anthropic", assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, TOOL_USE)),
    ("anthropic", user({"type": "tool_result", "tool_use_id": "t1", "is_error": True,
        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png",
        "data": "iVBORw0KGgo="}}]})),
    ("anthropic", assistant({"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "s",
        "input": {}})),
    ("bedrock", user({"text": "a"}, {"cachePoint": {"type": "default"}})),
    ("bedrock", user({"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}})),
    ("bedrock", assistant({"reasoningContent": {"reasoningText": {"text": "hm",
        "signature": "s"}}}, {"toolUse": {**BEDROCK_USE, "input": {"a": [1, None, 2.5]}}})),
    ("bedrock", user({"toolResult": {"toolUseId": "t", "status": "error", "content": [
        {"json": {"a": 1}}]}})),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "message", "expected"), PLANTED)
def test_a_planted_fault_is_refused_for_what_it_is(provider, message, expected):
    """One fault in a message, named with its place; the message before it is right."""
    good = next(copy.deepcopy(right) for known, right in RIGHT if known == provider)
    found = faults([good, message], provider)
    assert {fault.index for fault in found} == {1}
    assert any(fault.kind.startswith(expected) for fault in found), [f.kind for f in found]


@pytest.mark.parametrize(("provider", "message"), RIGHT)
def test_what_a_provider_takes_is_accepted(provider, message):
    """Messages from the providers' own references."""
    assert faults([message], provider) == []


@pytest.mark.parametrize(("provider", "message"), RIGHT)
def test_one_key_too_many_is_refused_at_any_depth(provider, message):
    """Nothing of a message is skipped: no list, no block, nothing that is checked lazily."""
    accepted = []
    for place in dicts_in(message):
        strange = copy.deepcopy(message)
        found = strange
        for step in place:
            found = found[step]
        found["x_strange"] = 1
        if not faults([strange], provider):
            accepted.append(place)
    assert accepted == [place for place in dicts_in(message) if place and place[-1] in FREE]


FREE = ("input", "json")
"""A call's arguments and a result as JSON hold whatever the tool takes and gives."""


def dicts_in(value, place=()):
    """The places of all dicts within a message."""
    if isinstance(value, dict):
        yield place
        for key, inner in value.items():
            yield from dicts_in(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from dicts_in(inner, (*place, index))


def test_the_system_parameter_is_judged_too():
    """Anthropic and Bedrock have one; OpenAI has messages."""
    said = {"anthropic": {"type": "text", "text": "be brief"}, "bedrock": {"text": "be brief"}}
    for provider in PROVIDERS:
        found = faults([], provider, [said.get(provider, {"type": "text", "text": "be brief"})])
        assert bool(found) is (provider not in said), provider
    assert faults([], "anthropic", [{"text": "be brief"}])
    assert faults([], "bedrock", [{"type": "text", "text": "be brief"}])


def test_a_union_lists_its_members_without_response_models():
    """What the other tests walk: types by their tags, the optional ones too."""
    assert [tags_of(member, "role") for member in members_of(MessageParam)] == [
        ["user"], ["assistant"], ["system"],
    ]  # fmt: skip
    tags = [tag for member in members_of(ResponseInputItemParam) for tag in tags_of(member)]
    assert {"message", "function_call", "item_reference", "(none)"} <= set(tags)
