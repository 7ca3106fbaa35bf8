"""Pydantic AI's messages become ours and come back equal."""

from __future__ import annotations

import dataclasses
import json
import typing
from datetime import UTC, datetime

import pydantic_ai.messages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import ModelMessagesTypeAdapter
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.usage import RequestUsage

from agent_memory import ConversationMessage, InvalidRequestError, Usage
from agent_memory.adapters.pydantic_ai import from_pydantic_ai, to_pydantic_ai
from agent_memory.providers import parts, repair, to_anthropic, validate
from agent_memory.storage.codec import decode_entry, encode_entry

PNG = BinaryContent(b"\xfb\xef\xbe\xff\x00png", media_type="image/png", identifier="p1")
PDF = BinaryContent(b"%PDF", media_type="application/pdf")
SOUND = BinaryContent(b"wave", media_type="audio/wav")
IMAGE = ImageUrl("https://example.com/a.png", force_download=True)


def returned(content, **fields):
    return ToolReturnPart("look", content, "c1", **fields)


REQUEST_PARTS = {
    "text": [UserPromptPart("hello")],
    "strange text": [UserPromptPart("\0 \u2028 🦉 e\u0301")],
    "items": [UserPromptPart(["look at", IMAGE, PNG, PDF, SOUND, "and this", CachePoint()])],
    "more items": [
        UserPromptPart(
            [
                TextContent("noted", metadata={"source": "app"}),
                AudioUrl("https://example.com/a.mp3"),
                VideoUrl("https://example.com/a.mp4"),
                DocumentUrl("https://example.com/a.pdf", media_type="application/pdf"),
                UploadedFile("file-1", provider_name="openai"),
            ]
        )
    ],
    "no items": [UserPromptPart([]), UserPromptPart("")],
    "system first": [SystemPromptPart("be brief", dynamic_ref="f"), UserPromptPart("hello")],
    "system only": [SystemPromptPart("be brief"), SystemPromptPart("and kind")],
    "system later": [UserPromptPart("hello"), SystemPromptPart("be brief")],
    "returned text": [returned("sunny")],
    "returned data": [returned({"t": [1, 2.5, None, "é"]}, metadata={"rows": 3})],
    "returned list": [returned(["a", {"b": 1}])],
    "returned kinds (C95)": [
        returned([{"kind": [1, 2]}]),
        returned([{"kind": {"x": "y"}}, "and text"]),
        returned([{"kind": None, "url": "u"}]),
    ],
    "returned nothing": [returned(None)],
    "returned number": [returned(42)],
    "returned files": [returned(["a plot", PNG, {"rows": 2}, SOUND, IMAGE])],
    "failed": [returned("no such city", outcome="failed")],
    "denied": [returned("no", outcome="denied")],
    "several": [returned("sunny"), ToolReturnPart("look", "rain", "c2"), UserPromptPart("so?")],
    "nothing": [],
}
# Newer than the lowest version that is tested.
if hasattr(pydantic_ai.messages, "RetryFeedbackPart"):
    retry = pydantic_ai.messages.RetryInfo("model_retry")
    REQUEST_PARTS["feedback"] = [pydantic_ai.messages.RetryFeedbackPart("say more", retry=retry)]
RESPONSE_PARTS = {
    "text": [TextPart("hi", id="t1", provider_name="openai")],
    "thinking": [ThinkingPart("hm", signature="c2ln", provider_name="anthropic"), TextPart("hi")],
    "unsigned thinking": [ThinkingPart("hm", id="rs_1", provider_details={"a": 1})],
    "dict args": [ToolCallPart("look", {"city": "Kraków"}, "c1")],
    "no args": [ToolCallPart("look", None, "c1"), ToolCallPart("look", "", "c2")],
    "compact args": [ToolCallPart("look", '{"city":"Kraków","days":1.50e1}', "c1")],
    "spaced args": [ToolCallPart("look", '{"city": "Krak\\u00f3w", "days": 1}', "c1")],
    "odd args": [ToolCallPart("look", '{ "city" :"x"}', "c1")],
    "broken args": [ToolCallPart("look", '{"city": "x', "c1")],
    "list args": [ToolCallPart("look", "[1]", "c1"), ToolCallPart("look", '{"a":NaN}', "c2")],
    "native tools": [
        NativeToolCallPart("web_search", {"q": "x"}, "n1", provider_name="anthropic"),
        NativeToolReturnPart("web_search", [{"url": "u"}], "n1", provider_name="anthropic"),
        TextPart("found"),
    ],
    "file": [FilePart(PNG)],
    "compaction": [CompactionPart("gist", provider_name="anthropic")],
    "nothing": [],
}
MESSAGES = {
    **{f"request: {name}": ModelRequest(held) for name, held in REQUEST_PARTS.items()},
    **{f"response: {name}": ModelResponse(held) for name, held in RESPONSE_PARTS.items()},
    "request: fields": ModelRequest(
        [UserPromptPart("hello")], instructions="be brief", timestamp=datetime.now(UTC),
        run_id="r1", conversation_id="k1", metadata={"app": {"a": 1}}, state="interrupted",
    ),
    "response: fields": ModelResponse(
        [TextPart("hi")], model_name="m", provider_name="openai", provider_response_id="resp_1",
        provider_details={"finish": "stop"}, finish_reason="stop", run_id="r1",
        usage=RequestUsage(
            input_tokens=10, output_tokens=4, cache_read_tokens=6, details={"reasoning_tokens": 3}
        ),
    ),
}  # fmt: skip


def dumped(messages):
    return json.loads(ModelMessagesTypeAdapter.dump_json(messages))


def reloaded(messages):
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def through_a_store(messages):
    ours = from_pydantic_ai(messages)
    return to_pydantic_ai(
        [
            decode_entry(encode_entry(message.placed(place, "a")), place, "a")
            for place, message in enumerate(ours, start=1)
        ]
    )


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_every_kind_of_message_comes_back_equal_from_a_store(message):
    """As equal as ModelMessagesTypeAdapter itself brings it back."""
    back = through_a_store([message])
    assert dumped(back) == dumped([message])
    assert back == reloaded([message])


@pytest.mark.parametrize("content", [[{"kind": [1, 2]}], [{"kind": {"x": "y"}}]])
def test_c95_what_a_tool_returned_may_have_a_kind_that_is_no_text(content):
    """A kind that cannot be hashed is data like any other."""
    (back,) = through_a_store([ModelRequest([ToolReturnPart("t", content, tool_call_id="c")])])
    assert back.parts[0].content == content


def test_a_whole_conversation_comes_back_equal():
    """All of them in one list: none runs into its neighbour."""
    messages = list(MESSAGES.values())
    assert dumped(through_a_store(messages)) == dumped(messages)


data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
# Tools may answer with the words that the framework's own dumps use.
words = st.sampled_from(["kind", "media_type", "data", "url", "content", "part_kind"])
fields = st.dictionaries(st.text(max_size=5) | words, data, max_size=3)
shown = st.text() | st.builds(
    BinaryContent, st.binary(max_size=9), media_type=st.sampled_from(["image/png", "audio/wav"])
)
OUTCOMES = typing.get_args(typing.get_type_hints(ToolReturnPart)["outcome"])
request_parts = st.lists(
    st.builds(SystemPromptPart, st.text())
    | st.builds(UserPromptPart, st.text() | st.lists(shown, max_size=3))
    | st.builds(
        ToolReturnPart, st.text(), data | st.lists(shown | fields), st.sampled_from("ab"),
        metadata=fields, outcome=st.sampled_from(OUTCOMES),
    ),
    max_size=3,
)  # fmt: skip
response_parts = st.lists(
    st.builds(TextPart, st.text())
    | st.builds(ThinkingPart, st.text(), signature=st.none() | st.text())
    | st.builds(
        ToolCallPart,
        st.text(),
        st.none() | fields | st.text() | fields.map(json.dumps),
        st.sampled_from(["a", "b"]),
    ),
    max_size=3,
)
messages = st.lists(
    st.builds(ModelRequest, request_parts, instructions=st.none() | st.text())
    | st.builds(ModelResponse, response_parts, metadata=st.none() | fields),
    max_size=3,
)


@given(messages)
def test_any_messages_come_back_equal(given_messages):
    """Whatever ModelMessagesTypeAdapter can dump."""
    assert dumped(to_pydantic_ai(from_pydantic_ai(given_messages))) == dumped(given_messages)


@dataclasses.dataclass
class Weather:
    degrees: float


def test_a_tools_own_object_comes_back_as_its_data():
    """As from Pydantic AI's own adapter."""
    (back,) = through_a_store([ModelRequest([returned(Weather(3.5))])])
    assert back.parts[0].content == {"degrees": 3.5}


def test_what_cannot_be_dumped_is_refused():
    """Before anything is stored."""
    with pytest.raises(InvalidRequestError, match="cannot be dumped"):
        from_pydantic_ai([ModelRequest([returned(object())])])


def test_what_is_no_message_is_refused():
    """The error names it."""
    with pytest.raises(InvalidRequestError, match="message 1 must be a ModelRequest"):
        from_pydantic_ai([ModelRequest([]), "hello"])


def test_what_a_model_understands_is_where_summarizers_and_rules_look():
    """Roles, texts, calls and results, in a provider's own form; a system prompt by itself."""
    ours = from_pydantic_ai(
        [
            ModelRequest([SystemPromptPart("be brief"), UserPromptPart(["what is it?", PNG])]),
            ModelResponse([TextPart("let me look"), ToolCallPart("look", '{"a":1}', "c1")]),
            ModelRequest([returned({"t": 21.5}, outcome="failed")]),
            ModelResponse([TextPart("sunny")]),
        ]
    )
    assert [message.role for message in ours] == [
        "system", "user", "assistant", "user", "assistant"
    ]  # fmt: skip
    kinds = [[part.kind for part in parts(message)] for message in ours]
    assert kinds == [["text"], ["text", "media"], ["text", "call"], ["result"], ["text"]]
    assert validate(ours, "anthropic") == []
    assert to_anthropic(ours[2:4]) == [
        {"role": "assistant", "content": [
            {"type": "text", "text": "let me look"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": '{"t": 21.5}',
             "is_error": True}]},
    ]  # fmt: skip
    picture = ours[1].content[1]["source"]
    assert picture["data"] == "++++/wBwbmc="


def test_usage_run_and_time_are_taken_over():
    """So that budgets, run-aware summarizers and audits have them."""
    message = MESSAGES["response: fields"]
    (ours,) = from_pydantic_ai([message])
    assert ours.usage == Usage(10, 4, 6, 0)
    assert ours.run_id == "r1"
    assert ours.timestamp == message.timestamp


def test_ids_are_the_same_each_time():
    """Also for messages that came from a store; so that saving again stores nothing twice."""
    held = list(MESSAGES.values())
    ids = [message.id for message in from_pydantic_ai(held)]
    assert ids == [message.id for message in from_pydantic_ai(through_a_store(held))]
    assert len(set(ids)) == len(ids)


def test_equal_messages_in_one_list_are_several_all_the_same():
    """Each with an id of its own."""
    twice = [ModelRequest([UserPromptPart("hi", timestamp=datetime(2026, 1, 1, tzinfo=UTC))])] * 2
    ours = from_pydantic_ai(twice)
    assert ours[0].id != ours[1].id
    assert to_pydantic_ai(ours) == twice


def test_a_dynamic_system_prompt_does_not_change_who_a_message_is():
    """Pydantic AI evaluates it anew in each run."""
    asked = UserPromptPart("hi")
    first, second = (
        from_pydantic_ai([ModelRequest([SystemPromptPart(text, dynamic_ref="now"), asked])])
        for text in ("it is 9", "it is 10")
    )
    assert [message.id for message in first] == [message.id for message in second]


USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Oslo"}}


def test_messages_of_another_origin_are_converted_by_what_they_say():
    """A summary, OpenAI's and Anthropic's own forms: requests and responses with our ids."""
    called = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    ours = [
        ConversationMessage("system", "be brief", id="m0"),
        ConversationMessage("user", "a summary", id="m1", run_id="r"),
        ConversationMessage("assistant", None, id="m2", extra={"tool_calls": [called]}),
        ConversationMessage("tool", "sunny", id="m3", extra={"tool_call_id": "c1"}),
        ConversationMessage("assistant", [{"type": "thinking", "thinking": "hm"}, USE], id="m4"),
        ConversationMessage("user", [{"image": {"format": "png", "source": {"bytes": b"\xff"}}}]),
        ConversationMessage("user", []),
    ]
    system, summary, call, result, again, picture = to_pydantic_ai(ours)
    assert isinstance(system.parts[0], SystemPromptPart)
    assert (summary.parts[0].content, summary.run_id) == ("a summary", "r")
    assert summary.metadata == {"agent_memory_id": "m1"}
    assert call.parts == [ToolCallPart("look", "{}", "c1")]
    assert (result.parts[0].tool_name, result.parts[0].content) == ("look", "sunny")
    assert again.parts == [ThinkingPart("hm"), ToolCallPart("look", {"city": "Oslo"}, "c1")]
    assert picture.parts[0].content[0].data == b"\xff"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "bedrock", "openai_responses"])
def test_a_view_made_valid_for_a_provider_still_makes_messages(provider):
    """Rewritten and merged ones as well: calls and results stay a pair."""
    ours = from_pydantic_ai(
        [
            ModelRequest([UserPromptPart("a")]),
            ModelRequest([UserPromptPart("b")]),
            ModelResponse(
                [ToolCallPart("look", {"a": 1}, "c1"), ToolCallPart("look", None, "c2")]
            ),
            ModelRequest([returned("sunny"), ToolReturnPart("look", "rain", "c2")]),
        ]
    )
    back = to_pydantic_ai(repair(ours, provider))
    held = [part for message in back for part in message.parts]
    calls = [part.tool_call_id for part in held if isinstance(part, ToolCallPart)]
    results = [part for part in held if isinstance(part, ToolReturnPart)]
    assert calls == [part.tool_call_id for part in results] == ["c1", "c2"]
    assert [part.tool_name for part in results] == ["look", "look"]


def test_a_text_that_was_scrubbed_comes_back_scrubbed():
    """Nothing of a message is held twice: what a transformation changed is what there is."""
    (ours,) = from_pydantic_ai([ModelRequest([UserPromptPart("my pin is 1234")])])
    fields = ours.to_dict() | {"content": "my pin is ****"}
    assert "1234" not in json.dumps(ours.to_dict()["metadata"])
    (back,) = to_pydantic_ai([ConversationMessage.from_dict(fields)])
    assert back.parts[0].content == "my pin is ****"
