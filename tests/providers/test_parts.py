"""What a message is made of, whichever form it has."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_exact_roundtrip import ANTHROPIC, BEDROCK, CHAT, FUNCTIONS, RESPONSES

from agent_memory.content import thaw
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import format_of, media_in, parts, text_message, text_of
from histories import SHAPES, mixtures


def kinds(message):
    return [part.kind for part in parts(message)]


def read(shape, item):
    load, _ = FUNCTIONS[shape]
    return load([item])[0]


def test_chat_messages_are_recognised():
    """Content first, then what lies beside it."""
    found = [kinds(read("openai_chat", item)) for item in CHAT]
    assert found == [
        ["text"], ["text", "media"], ["media", "media"], ["call"], ["result"], ["call"],
        ["result"], ["reasoning", "text"], ["media"], ["text"], ["call"], [],
    ]  # fmt: skip


def test_responses_items_are_recognised():
    """One part an item, but for message items."""
    found = [kinds(read("openai_responses", item)) for item in RESPONSES]
    assert found == [
        ["text"], ["text", "media"], ["reasoning"], ["call"], ["result"], ["call"], ["call"],
        ["result"], ["call"], ["result"], ["text", "text"], ["other"], ["other"], ["other"],
    ]  # fmt: skip


def test_anthropic_blocks_are_recognised():
    """A block is a part."""
    found = [kinds(read("anthropic", item)) for item in ANTHROPIC]
    assert found == [
        ["text"], ["text", "media"], ["reasoning", "reasoning", "call", "result", "call"],
        ["result", "result", "text"], [], ["other"],
    ]  # fmt: skip


def test_bedrock_blocks_are_recognised():
    """A block is a part."""
    found = [kinds(read("bedrock", item)) for item in BEDROCK]
    assert found == [
        ["text", "media", "other"], ["reasoning", "reasoning", "text", "call"], ["result"], [],
        ["media", "text", "other"],
    ]  # fmt: skip


CALLS = [
    ("openai_chat", CHAT[3], "c1", '{"a": 1}'),
    ("openai_chat", CHAT[5], "c2", "free text"),
    ("openai_responses", RESPONSES[3], "c1", "{}"),
    ("openai_responses", RESPONSES[6], "c2", "free"),
    ("openai_responses", RESPONSES[8], "m1", "{}"),
    ("anthropic", ANTHROPIC[2], "t1", {}),
    ("bedrock", BEDROCK[1], "t1", {"n": 1.5}),
]


@pytest.mark.parametrize(("shape", "item", "call_id", "arguments"), CALLS)
def test_calls_tell_id_name_and_arguments(shape, item, call_id, arguments):
    """Arguments stay as the provider wrote them."""
    call = [part for part in parts(read(shape, item)) if part.kind == "call"][-1]
    assert (call.id, call.payload, call.hosted) == (call_id, arguments, False)
    assert call.name in ("f", "g", "h")
    assert call.waits


RESULTS = [
    ("openai_chat", CHAT[4], "c1", "3", False),
    ("openai_responses", RESPONSES[4], "c1", "3", False),
    ("openai_responses", RESPONSES[9], "m1", "approved", False),
    ("anthropic", ANTHROPIC[3], "t1", "", True),
    ("bedrock", BEDROCK[2], "t1", '{"a": [1]}', True),
]


@pytest.mark.parametrize(("shape", "item", "call_id", "text", "is_error"), RESULTS)
def test_results_tell_id_text_and_failure(shape, item, call_id, text, is_error):
    """JSON counts as text."""
    result = parts(read(shape, item))[0]
    assert (result.kind, result.id, result.text) == ("result", call_id, text)
    assert result.is_error is is_error
    assert result.answers


def test_a_result_tells_what_it_holds():
    """An image within a result is seen."""
    (result,) = parts(read("bedrock", BEDROCK[2]))
    assert [(part.kind, part.name) for part in result.inner] == [
        ("text", None),
        ("media", "document"),
    ]


def test_what_the_provider_runs_is_hosted():
    """Nobody has to answer a web search."""
    search, found = parts(read("anthropic", ANTHROPIC[2]))[2:4]
    assert (search.hosted, found.hosted, found.id) == (True, True, "s1")
    assert parts(read("openai_responses", RESPONSES[5]))[0].hosted


def test_text_of_is_what_is_said():
    """No reasoning, calls or results."""
    assert text_of(read("openai_chat", CHAT[7])) == ""
    assert text_of(read("anthropic", ANTHROPIC[3])) == "go on"
    assert text_of(read("openai_responses", RESPONSES[10])) == "done\nbut"
    assert text_of(ConversationMessage("user", "hi")) == "hi"
    assert text_of(ConversationMessage("assistant", None)) == ""


SHAPED = [
    ("openai_chat", CHAT[3]),
    ("openai_chat", CHAT[4]),
    ("openai_chat", CHAT[1]),
    ("openai_chat", CHAT[9]),
    ("openai_responses", RESPONSES[1]),
    ("openai_responses", RESPONSES[2]),
    ("openai_responses", RESPONSES[10]),
    ("anthropic", ANTHROPIC[1]),
    ("anthropic", ANTHROPIC[2]),
    ("anthropic", {"role": "user", "content": [{"type": "text", "text": "a"}]}),
    ("bedrock", BEDROCK[0]),
    ("bedrock", {"role": "user", "content": [{"text": "a"}]}),
]


@pytest.mark.parametrize(("shape", "item"), SHAPED)
def test_shape_of_tells_the_provider(shape, item):
    """By the first thing that only one of them writes."""
    assert format_of(read(shape, item)) == shape


@pytest.mark.parametrize("content", ["hi", None, [], [{"type": "new"}], [{"new": 1}]])
def test_shape_of_does_not_guess(content):
    """Strings, nothing, and unknown blocks may be anyone's."""
    assert format_of(ConversationMessage("user", content)) is None


LIKE = [
    (None, "hi"),
    (ConversationMessage("user", "plain"), "hi"),
    (read("openai_chat", CHAT[3]), "hi"),
    (read("openai_responses", RESPONSES[2]), "hi"),
    (read("bedrock", BEDROCK[0]), [{"text": "hi"}]),
    (read("anthropic", ANTHROPIC[2]), [{"type": "text", "text": "hi"}]),
    (read("anthropic", ANTHROPIC[0]), "hi"),
]


@pytest.mark.parametrize(("like", "content"), LIKE)
def test_text_message_takes_the_shape_of_its_model(like, content):
    """And any other field of a message."""
    made = text_message("assistant", "hi", like=like, id="m1", metadata={"a": 1})
    assert made.content == content
    assert (made.role, made.id, made.metadata) == (ParticipantRole.ASSISTANT, "m1", {"a": 1})


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.binary(max_size=5),
)
NAMES = st.sampled_from([
    "type", "text", "id", "name", "input", "content", "toolUse", "toolResult", "toolUseId",
    "source", "image", "image_url", "tool_use_id", "tool_calls", "function", "call_id", "output",
    "reasoningContent", "summary", "citationsContent", "audio", "file", "role", "status", "bytes",
])  # fmt: skip
TYPES = st.sampled_from([
    "text", "tool_use", "tool_result", "image", "image_url", "file", "input_audio", "thinking",
    "function_call", "function_call_output", "reasoning", "input_text", "x_tool_result",
    "message", "search_result", "document", "custom_tool_call_output", "refusal",
])  # fmt: skip
HOSTILE = st.recursive(
    st.one_of(SCALARS, TYPES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, max_size=4),
        st.tuples(TYPES, st.dictionaries(NAMES, inner, max_size=3)).map(
            lambda pair: {**pair[1], "type": pair[0]}
        ),
    ),
    max_leaves=12,
)


@given(
    content=HOSTILE,
    extra=st.dictionaries(NAMES, HOSTILE, max_size=3),
    role=st.sampled_from([role.value for role in ParticipantRole]),
)
@example({"type": "custom_tool_call_output", "status": []}, {}, "user")  # found by search
def test_odd_content_never_raises(content, extra, role):
    """Whatever is stored can be looked at, and sent back as it came where it fits nowhere."""
    message = ConversationMessage(role, content, extra=extra)
    for part in parts(message):
        assert part.kind in ("text", "call", "result", "reasoning", "media", "other")
        assert isinstance(part.text, str)
        media_in(part)
    format_of(message)
    text_of(message)
    for _, dump in FUNCTIONS.values():
        dump([message])


@given(history=mixtures())
def test_parts_leave_the_message_alone(history):
    """Reading is reading."""
    before = [thaw(message.content) for message in history]
    again = [parts(message) for message in history]
    assert [parts(message) for message in history] == again
    assert [message.content for message in history] == before


def test_all_shapes_have_samples():
    """The tables above cover every shape."""
    assert {shape for shape, _ in SHAPED} == set(SHAPES)
