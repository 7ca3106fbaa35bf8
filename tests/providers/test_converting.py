"""From one provider's form to another's, and what does not fit."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import (
    convert,
    format_of,
    from_anthropic,
    from_bedrock,
    from_openai,
    from_openai_responses,
    parts,
    reshape,
    to_anthropic,
    to_bedrock,
    to_openai,
    to_openai_responses,
)
from histories import SHAPES, Piece, Said, conversations, render

AIRLINE = Path(__file__).parents[3] / "shared" / "data" / "airline.jsonl"
WRITERS = {
    "openai_chat": to_openai,
    "openai_responses": to_openai_responses,
    "anthropic": to_anthropic,
    "bedrock": to_bedrock,
}
PNG = b"\x89PNG\r\n\x1a\n"
PNG_TEXT = base64.b64encode(PNG).decode()
CALL_1 = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CALL_2 = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}
EXCHANGE = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "I look", "tool_calls": [CALL_1, CALL_2]},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "assistant", "content": "done"},
]


def test_three_chat_messages_become_one_exchange_of_anthropic_blocks():
    """Results of neighbouring tool messages share one user message."""
    assert to_anthropic(from_openai(EXCHANGE)) == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "c2", "name": "g", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
            {"type": "tool_result", "tool_use_id": "c1", "content": "one"}]},
        {"role": "assistant", "content": "done"},
    ]  # fmt: skip


def test_chat_becomes_bedrock():
    """Everything is a list of blocks there."""
    assert to_bedrock(from_openai(EXCHANGE)) == [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [
            {"text": "I look"},
            {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"a": 1}}},
            {"toolUse": {"toolUseId": "c2", "name": "g", "input": {}}}]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "c2", "content": [{"text": "two"}]}},
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "one"}]}}]},
        {"role": "assistant", "content": [{"text": "done"}]},
    ]  # fmt: skip


def test_chat_becomes_responses_items():
    """Text, calls and outputs are items of their own."""
    assert to_openai_responses(from_openai(EXCHANGE)) == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"role": "assistant", "content": "done"},
    ]


def test_one_anthropic_message_becomes_three_tool_messages():
    """And the text beside the results a message of the user's."""
    results = [
        {"type": "tool_result", "tool_use_id": f"t{n}", "content": [{"type": "text", "text": "x"}]}
        for n in range(3)
    ]
    blocks = [*results, {"type": "text", "text": "go on"}]
    (message,) = from_anthropic([{"role": "user", "content": blocks}])
    made = reshape([message], "openai").messages
    assert [(m.role.value, m.content, dict(m.extra)) for m in made] == [
        ("tool", "x", {"tool_call_id": "t0"}),
        ("tool", "x", {"tool_call_id": "t1"}),
        ("tool", "x", {"tool_call_id": "t2"}),
        ("user", [{"type": "text", "text": "go on"}], {}),
    ]
    assert made[0].id == message.id
    assert len({m.id for m in made}) == 4
    assert [m.id for m in reshape([message], "openai").messages] == [m.id for m in made]


def test_parallel_function_call_items_join_one_chat_message():
    """Chat Completions wants all calls of a turn in one message."""
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
    ]
    written = to_openai(from_openai_responses(items))
    assert [each["role"] for each in written] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in written[1]["tool_calls"]] == ["c1", "c2"]


IMAGES = {
    "openai_chat": {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PNG_TEXT}"},
    },
    "openai_responses": {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{PNG_TEXT}",
        "detail": "auto",
    },
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT},
    },
    "bedrock": {"image": {"format": "png", "source": {"bytes": PNG}}},
}


@pytest.mark.parametrize("target", SHAPES)
@pytest.mark.parametrize("source", SHAPES)
def test_images_go_everywhere(source, target):
    """Bytes, base64 and data URLs are one picture."""
    message = ConversationMessage("user", [IMAGES[source]])
    (written,) = WRITERS[target]([message])
    assert written == {"role": "user", "content": [IMAGES[target]]}


def test_documents_go_where_they_may():
    """A PDF as Anthropic, Bedrock and OpenAI write it."""
    pdf = base64.b64encode(b"%PDF").decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": pdf}
    block = {"type": "document", "title": "My file.pdf", "source": source}
    messages = from_anthropic([{"role": "user", "content": [block]}])
    document = {"format": "pdf", "name": "My file pdf", "source": {"bytes": b"%PDF"}}
    told = {"text": "(Document: My file pdf)"}  # Bedrock wants text beside it
    assert to_bedrock(messages)[0]["content"] == [{"document": document}, told]
    url = f"data:application/pdf;base64,{pdf}"
    file = {"filename": "My file.pdf", "file_data": url}
    assert to_openai(messages)[0]["content"] == [{"type": "file", "file": file}]
    assert to_openai_responses(messages)[0]["content"] == [{"type": "input_file", **file}]


def test_claude_s_reasoning_goes_between_anthropic_and_bedrock():
    """Signatures are valid on both."""
    said = [
        Said("assistant", (Piece("reasoning", "hm"), Piece("call", "lookup", "a"))),
    ]
    anthropic, bedrock = render(said, "anthropic"), render(said, "bedrock")
    assert to_bedrock(anthropic) == to_bedrock(bedrock)
    assert to_anthropic(bedrock) == to_anthropic(anthropic)
    redacted = from_anthropic(
        [{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "AAAA"}]}]
    )
    content = to_bedrock(redacted)[0]["content"]
    assert content == [{"reasoningContent": {"redactedContent": b"\0\0\0"}}]
    assert to_anthropic(from_bedrock([{"role": "assistant", "content": content}])) == to_anthropic(
        redacted
    )


LOST = [
    ("openai", "anthropic", {"type": "thinking", "thinking": "hm", "signature": "c2ln"}),
    ("openai", "bedrock", {"cachePoint": {"type": "default"}}),
    ("anthropic", "bedrock", {"video": {"format": "mp4", "source": {"bytes": b"x"}}}),
    ("bedrock", "anthropic", {"type": "server_tool_use", "id": "s", "name": "w", "input": {}}),
    (
        "bedrock",
        "openai",
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ),
]


@pytest.mark.parametrize(("target", "source", "block"), LOST)
def test_what_cannot_be_carried_is_told(target, source, block):
    """The rest goes on without it."""
    text = {"text": "hi"} if source == "bedrock" else {"type": "text", "text": "hi"}
    message = ConversationMessage("assistant" if "name" in block else "user", [text, block])
    done = convert([ConversationMessage("user", "a"), message], target)
    assert [(lost.index, lost.part.raw) for lost in done.left_out] == [(1, block)]
    assert done.left_out[0].reason
    assert len(done.messages) == 2


def test_a_failed_result_keeps_its_text_and_tells_the_lost_mark():
    """OpenAI has no field for it."""
    block = {"type": "tool_result", "tool_use_id": "t", "content": "boom", "is_error": True}
    done = convert(from_anthropic([{"role": "user", "content": [block]}]), "openai")
    assert done.messages == [{"role": "tool", "tool_call_id": "t", "content": "boom"}]
    assert [lost.reason for lost in done.left_out] == [
        "there is no mark for a failed result; its text is carried"
    ]
    bedrock = to_bedrock(from_anthropic([{"role": "user", "content": [block]}]))
    assert bedrock[0]["content"][0]["toolResult"]["status"] == "error"


def test_an_image_in_a_result_is_carried_where_results_hold_images():
    """In Chat Completions a message of the user's follows with it."""
    content = [{"text": "see"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]
    result = {"toolResult": {"toolUseId": "t", "content": content}}
    messages = from_bedrock([{"role": "user", "content": [result]}])
    assert to_anthropic(messages)[0]["content"][0]["content"] == [
        {"type": "text", "text": "see"},
        IMAGES["anthropic"],
    ]
    assert to_openai_responses(messages)[0]["output"][1] == IMAGES["openai_responses"]
    done = convert(messages, "openai")
    assert done.messages[0]["content"] == "see"
    assert done.messages[1]["role"] == "user"
    assert done.messages[1]["content"][1] == IMAGES["openai_chat"]
    assert done.left_out == []


ARGUMENTS = [
    ('{"a": [1, {"b": "é"}]}', {"a": [1, {"b": "é"}]}),
    ("", {}),
    ("not json", {"input": "not json"}),
    ("[1, 2]", {"input": "[1, 2]"}),
    (None, {}),
]


@pytest.mark.parametrize(("arguments", "expected"), ARGUMENTS)
def test_arguments_become_an_object(arguments, expected):
    """Anthropic and Bedrock take nothing else."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = from_openai([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert to_anthropic(messages)[0]["content"][0]["input"] == expected


def test_bytes_in_arguments_become_text_in_json():
    """JSON has no bytes; a call is never lost for that."""
    use = {"toolUse": {"toolUseId": "t", "name": "f", "input": {"b": b"\0\0\0"}}}
    (written,) = to_openai(from_bedrock([{"role": "assistant", "content": [use]}]))
    assert json.loads(written["tool_calls"][0]["function"]["arguments"]) == {"b": "AAAA"}


def test_ids_of_other_providers_are_made_legal_and_stay_apart():
    """Anthropic and Bedrock allow letters, digits, _ and - alone."""
    ids = ["functions.f:0", "functions.f;0", "x" * 100, "fine_1"]
    calls = [{**CALL_1, "id": name} for name in ids]
    chat = [{"role": "assistant", "content": None, "tool_calls": calls}]
    chat += [{"role": "tool", "tool_call_id": name, "content": "x"} for name in ids]
    assistant, user = to_anthropic(from_openai(chat))
    used = [block["id"] for block in assistant["content"]]
    assert [block["tool_use_id"] for block in user["content"]] == used
    assert len(set(used)) == 4
    assert used[3] == "fine_1"
    assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in used)


@pytest.mark.parametrize("target", ["anthropic", "bedrock"])
def test_system_messages_are_put_apart_where_the_api_wants_them_so(target):
    """Only the leading ones: the others have no place there."""
    chat = [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]
    done = convert(from_openai(chat), target)
    assert [block["text"] for block in done.system] == ["a", "b"]
    assert [each["role"] for each in done.messages] == ["user"]
    assert convert(from_openai(chat), "openai").messages == chat


def test_an_unknown_provider_is_refused():
    """With the names there are."""
    with pytest.raises(InvalidRequestError, match="'bedrock'"):
        convert([], "gemini")


def test_messages_that_fit_are_passed_on_as_they_are():
    """The same object: nothing is copied or renamed."""
    messages = [*from_openai(EXCHANGE), ConversationMessage("user", [{"new": 1}])]
    assert all(a is b for a, b in zip(reshape(messages, "openai").messages, messages, strict=True))


@given(said=conversations(), source=st.sampled_from(SHAPES), target=st.sampled_from(SHAPES))
def test_converted_messages_are_in_the_new_form_and_keep_all_text(said, source, target):
    """No block of the old form is left; calls, results and text survive with their ids."""
    history = render(said, source)
    written = WRITERS[target](history)
    load = {
        "openai_chat": from_openai,
        "openai_responses": from_openai_responses,
        "anthropic": from_anthropic,
        "bedrock": from_bedrock,
    }[target]
    made = load(written)
    assert WRITERS[target](made) == written
    assert {format_of(message) for message in made} <= {target, None, "anthropic"}

    def told(messages):
        held = [part for message in messages for part in parts(message)]
        calls = sorted(part.id for part in held if part.kind == "call")
        results = sorted((part.id, part.text) for part in held if part.kind == "result")
        texts = [part.text for part in held if part.kind == "text" and part.text.strip()]
        return calls, results, sorted(texts)

    assert told(made) == told(history)


@pytest.mark.parametrize("target", ["openai_responses", "anthropic", "bedrock"])
def test_the_airline_conversations_go_there_and_back(target):
    """Through another provider's form and back: the same calls, results and texts."""
    if not AIRLINE.exists():
        pytest.skip("the airline conversations are not beside this checkout")
    for line in AIRLINE.read_text(encoding="utf-8").splitlines():
        messages = from_openai(json.loads(line)["messages"])
        done = convert(messages, target)
        assert done.left_out == []
        back = to_openai(reshape(messages, target).messages)
        texts = [part.text for m in from_openai(back) for part in parts(m) if part.kind == "text"]
        assert [text for text in texts if text.strip()] == [
            part.text
            for m in messages
            for part in parts(m)
            if part.kind == "text" and part.text.strip()
        ]


def test_a_message_that_fits_is_never_added_to():
    """Only what was rewritten joins; a provider's own message stays the object it is."""
    own = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": ""}]}
    (fits,) = from_anthropic([own])
    (foreign,) = from_openai([{"role": "tool", "tool_call_id": "b", "content": "x"}])
    made = reshape([fits, foreign], "anthropic").messages
    assert made[0] is fits
    assert len(made) == 2


def test_a_tool_message_with_another_provider_s_blocks_is_rewritten():
    """Frameworks mix them: role tool, but Bedrock's way of writing text."""
    message = ConversationMessage("tool", [{"text": "x"}], extra={"tool_call_id": "a"})
    assert to_openai([message]) == [{"role": "tool", "tool_call_id": "a", "content": "x"}]


def test_results_come_before_text():
    """Anthropic refuses text before the results of one message."""
    result = {"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}
    (written,) = to_anthropic(
        from_bedrock([{"role": "user", "content": [{"text": "and now"}, result]}])
    )
    assert [block["type"] for block in written["content"]] == ["tool_result", "text"]


@pytest.mark.parametrize("data", ["abcd!", 7, None])
def test_broken_pictures_are_left_out(data):
    """What cannot be decoded cannot be carried."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    blocks = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    done = convert(from_anthropic([{"role": "user", "content": blocks}]), "bedrock")
    assert done.messages == [{"role": "user", "content": [{"text": "see"}]}]
    assert len(done.left_out) == 1
