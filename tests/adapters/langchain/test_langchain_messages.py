"""LangChain's messages become ours and come back equal."""

from __future__ import annotations

import dataclasses
import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import BaseModel

from agent_memory import ConversationMessage, InvalidRequestError, Usage
from agent_memory.adapters.langchain import from_langchain, to_langchain
from agent_memory.providers import parts, repair, to_anthropic, to_openai, validate
from agent_memory.storage.codec import decode_entry, encode_entry

CALL = {"name": "look", "args": {"city": "Kraków", "days": 1.5}, "id": "c1", "type": "tool_call"}
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Kraków", "days": 1.5}}
REASONING = {"reasoning_content": "hm"}

KINDS = {
    "human": HumanMessage("hello", name="bob", id="m1", additional_kwargs={"a": [1, None]}),
    "human with a picture": HumanMessage(
        [{"type": "text", "text": "what is it?"},
         {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
         {"type": "image", "base64": "AAAA", "mime_type": "image/png"}, "bare text"]
    ),
    "system": SystemMessage("be brief"),
    "developer": SystemMessage("be brief", additional_kwargs={"__openai_role__": "developer"}),
    "ai": AIMessage(
        "hi",
        id="run-1",
        name="agent",
        additional_kwargs={"refusal": None, **REASONING},
        response_metadata={"model_name": "m", "logprobs": None, "finish_reason": "stop"},
        usage_metadata={
            "input_tokens": 10, "output_tokens": 4, "total_tokens": 14,
            "input_token_details": {"cache_read": 6}, "output_token_details": {"reasoning": 3},
        },
    ),
    "calls": AIMessage("", tool_calls=[CALL, {**CALL, "id": "c2", "args": {}}]),
    "call without id": AIMessage("", tool_calls=[{**CALL, "id": None}]),
    "call with bytes": AIMessage("", tool_calls=[{**CALL, "args": {"data": b"\xff"}}]),
    "anthropic's calls": AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "s"},
         {"type": "text", "text": "let me look"}, USE],
        tool_calls=[CALL],
    ),
    "standard calls": AIMessage(content_blocks=[{"type": "text", "text": "so"}, CALL]),
    "invalid call": AIMessage(
        "",
        tool_calls=[CALL],
        invalid_tool_calls=[
            {"name": "look", "args": '{"city', "id": "c2", "error": "no JSON",
             "type": "invalid_tool_call"}
        ],
    ),
    "nameless invalid call": AIMessage(
        "",
        invalid_tool_calls=[
            {"name": None, "args": None, "id": None, "error": None, "type": "invalid_tool_call"}
        ],
    ),
    "tool": ToolMessage("sunny", tool_call_id="c1", name="look", artifact={"rows": [1, b"\0"]}),
    "failed tool": ToolMessage("no such city", tool_call_id="c1", status="error"),
    "tool with blocks": ToolMessage([{"type": "text", "text": "sunny"}], tool_call_id="c1"),
    "chat": ChatMessage("hm", role="critic"),
    "chat as a user": ChatMessage("hm", role="user"),
    "function": FunctionMessage("42", name="look"),
    "empty": AIMessage(""),
    "no blocks": HumanMessage([]),
    "strange text": HumanMessage("\0 \ud800 \u2028 🦉 e\u0301"),
}  # fmt: skip


@pytest.mark.parametrize("message", KINDS.values(), ids=KINDS)
def test_every_kind_of_message_comes_back_equal_from_a_store(message):
    """Type, content, calls, ids, names, kwargs, usage, metadata, artifact and status survive."""
    (ours,) = from_langchain([message])
    stored = decode_entry(encode_entry(ours.placed(1, "a")), 1, "a")
    (back,) = to_langchain([stored])
    assert back == message
    assert type(back) is type(message)
    assert back.model_dump() == message.model_dump()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
fields = st.dictionaries(st.text(min_size=1, max_size=8), plain, max_size=3)
names = st.none() | st.text(min_size=1, max_size=8)
blocks = st.lists(
    st.text() | st.fixed_dictionaries({"type": st.just("text"), "text": st.text()})
    | st.fixed_dictionaries(
        {"type": st.just("tool_use"), "id": st.sampled_from(["c1", "c2"]),
         "name": st.text(), "input": fields}
    ),
    max_size=3,
)  # fmt: skip
common = {
    "content": st.text() | blocks,
    "name": names,
    "id": names,
    "additional_kwargs": fields,
    "response_metadata": fields,
}
calls = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(), "args": fields, "id": st.none() | st.sampled_from(["c1", "c3", ""]),
         "type": st.just("tool_call")}
    ),
    max_size=3,
)  # fmt: skip
invalid = st.lists(
    st.fixed_dictionaries(
        {"name": names, "args": st.none() | st.text(), "id": names, "error": names,
         "type": st.just("invalid_tool_call")}
    ),
    max_size=2,
)  # fmt: skip
messages = st.one_of(
    st.builds(HumanMessage, **common),
    st.builds(SystemMessage, **common),
    st.builds(AIMessage, **common, tool_calls=calls, invalid_tool_calls=invalid),
    st.builds(
        ToolMessage, **common, tool_call_id=st.text(), artifact=plain,
        status=st.sampled_from(["success", "error"]),
    ),
    st.builds(ChatMessage, **common, role=st.text()),
)  # fmt: skip


@given(st.lists(messages, max_size=3))
def test_any_messages_come_back_equal(given_messages):
    """Whatever LangChain can hold of plain data, it gets back."""
    assert to_langchain(from_langchain(given_messages)) == given_messages


def test_what_a_model_understands_is_where_summarizers_and_rules_look():
    """Calls, invalid ones too, and results pair; names and texts are parts."""
    messages = [HumanMessage("look"), KINDS["invalid call"]]
    messages += [ToolMessage("sunny", tool_call_id=name) for name in ("c1", "c2")]
    ours = from_langchain([*messages, AIMessage("sunny")])
    assert [message.role for message in ours] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [part.id for message in ours for part in parts(message) if part.id] == ["c1", "c2"] * 2
    assert validate(ours, "openai") == []


def test_calls_that_the_content_holds_are_not_written_twice():
    """Anthropic's blocks name the call; a second one beside them would be a duplicate."""
    (ours,) = from_langchain([KINDS["anthropic's calls"]])
    assert ours.extra == {}
    assert to_anthropic([ours])[0]["content"][2] == USE


def test_what_only_langchain_knows_is_never_sent_to_a_model():
    """Artifacts and the like are metadata."""
    ours = from_langchain([KINDS["calls"], KINDS["tool"]])
    assert to_openai(ours)[1] == {
        "role": "tool", "content": "sunny", "tool_call_id": "c1", "name": "look"
    }  # fmt: skip


def test_usage_is_what_langchain_reports():
    """Input, output, cached and reasoning tokens."""
    (ours,) = from_langchain([KINDS["ai"]])
    assert ours.usage == Usage(10, 4, 6, 3)


def test_a_chunk_becomes_the_message_it_is_a_chunk_of():
    """What a stream added up to is stored as the message that invoking gives."""
    chunk = AIMessageChunk("so", tool_call_chunks=[
        {"name": "look", "args": '{"a": 1}', "id": "c1", "index": 0, "type": "tool_call_chunk"}
    ])  # fmt: skip
    (back,) = to_langchain(from_langchain([chunk]))
    assert back == AIMessage("so", tool_calls=[{"name": "look", "args": {"a": 1}, "id": "c1"}])


def test_each_message_gets_an_id_of_its_own():
    """A cached reply comes with the id of the first one; it is another message all the same."""
    first, second = from_langchain([KINDS["ai"], KINDS["ai"]])
    assert first.id != second.id


class Weather(BaseModel):
    degrees: int


@dataclasses.dataclass
class Report:
    degrees: int


class Picture:
    degrees = 3


class Unit(enum.StrEnum):
    CELSIUS = "celsius"


@pytest.mark.parametrize(
    ("artifact", "kept"),
    [
        (Weather(degrees=3), {"degrees": 3}),
        (Report(degrees=3), {"degrees": 3}),
        ((1, 2), [1, 2]),
        (Unit.CELSIUS, "celsius"),
    ],
)
def test_an_artifact_that_is_nearly_plain_data_becomes_so(artifact, kept):
    """Pydantic objects, dataclasses, tuples and enums are stored as what they hold."""
    (back,) = to_langchain(from_langchain([ToolMessage("", tool_call_id="c", artifact=artifact)]))
    assert back.artifact == kept
    assert type(back.artifact) is type(kept)


def test_an_artifact_that_is_no_data_is_refused_with_its_place():
    """The error names the message, the path and the way out."""
    message = ToolMessage("", tool_call_id="c", artifact={"of": Picture()})
    with pytest.raises(InvalidRequestError, match=r"message 1: .*'artifact'.*'of'.*default="):
        from_langchain([HumanMessage("hi"), message])


def test_default_makes_data_of_an_artifact():
    """As json.dumps has it."""
    message = ToolMessage("", tool_call_id="c", artifact=Picture())
    (back,) = to_langchain(from_langchain([message], default=lambda it: it.degrees))
    assert back.artifact == 3


@pytest.mark.parametrize("thing", [RemoveMessage(id="m1"), "hello", {"role": "user"}])
def test_what_is_no_message_is_refused(thing):
    """RemoveMessage is an order, not something said."""
    with pytest.raises(InvalidRequestError, match="message 0 must be one of"):
        from_langchain([thing])


def test_messages_of_another_origin_are_converted_by_what_they_say():
    """A summary, an Anthropic exchange: LangChain's own kinds, with our ids."""
    ours = [
        ConversationMessage("user", "a summary", id="s"),
        ConversationMessage("assistant", [{"type": "text", "text": "so"}, USE], id="m1"),
        ConversationMessage(
            "user", [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}], id="m2"
        ),
    ]
    summary, call, result = to_langchain(ours)
    assert summary == HumanMessage("a summary", id="s")
    assert call.tool_calls == [CALL]
    assert result == ToolMessage("sunny", tool_call_id="c1", id="m2")


@pytest.mark.parametrize("provider", ["openai", "anthropic", "bedrock", "openai_responses"])
def test_a_view_made_valid_for_a_provider_still_makes_messages_of_langchains(provider):
    """Rewritten and merged ones as well: calls and results stay a pair."""
    messages = [HumanMessage("a"), HumanMessage("b", id="m2"), KINDS["calls"]]
    messages += [ToolMessage("sunny", tool_call_id=name) for name in ("c1", "c2")]
    back = to_langchain(repair(from_langchain(messages), provider))
    called = [call for m in back if isinstance(m, AIMessage) for call in m.tool_calls]
    results = [m.tool_call_id for m in back if isinstance(m, ToolMessage)]
    assert [call["id"] for call in called] == results == ["c1", "c2"]
    assert called[0] == CALL


def test_messages_that_come_back_can_be_edited():
    """LangChain's integrations add to content blocks in place."""
    (back,) = to_langchain(from_langchain([KINDS["human with a picture"]]))
    back.content[0]["cache_control"] = {"type": "ephemeral"}
    assert back.content[0]["cache_control"] == {"type": "ephemeral"}
