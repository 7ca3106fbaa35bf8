"""Histories that a provider refuses in a way that is easy to miss: parallel calls, odd ids."""

from __future__ import annotations

import pytest

from agent_memory import providers
from agent_memory.providers import convert, repair, validate
from judge import faults

LOADERS = {
    "openai": providers.from_openai,
    "openai_responses": providers.from_openai_responses,
    "anthropic": providers.from_anthropic,
    "bedrock": providers.from_bedrock,
}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
HELLO = {"role": "user", "content": "hello"}


def load(items, provider):
    return LOADERS[provider](items)


def right(messages, provider):
    """The repaired view, which both the rules and the judge accept, and which stays as it is."""
    view = repair(messages, provider)
    assert validate(view, provider) == []
    again = repair(view, provider)
    assert len(again) == len(view)
    assert all(a is b for a, b in zip(again, view, strict=True))
    request = convert(view, provider)
    assert faults(request.messages, provider, request.system) == []
    return view


def chat_calls(*ids):
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_a_picture_waits_for_the_results_of_all_parallel_calls():
    """Nothing but results may come before an exchange closes; then the picture follows."""
    seen = chat_result("a", [{"type": "text", "text": "see"}, PICTURE])
    items = [HELLO, chat_calls("a", "b"), seen, chat_result("b", "done")]
    messages = load([*items, {"role": "user", "content": "and?"}], "openai")
    views = [right(messages[:end], "openai") for end in range(1, len(messages) + 1)]
    roles = [[message.role.value for message in view] for view in views]
    assert roles[2] == ["user", "assistant", "tool"]
    assert roles[3] == ["user", "assistant", "tool", "tool", "user"]
    assert PICTURE in convert(views[3], "openai").messages[4]["content"]
    ids = [[message.id for message in view] for view in views]
    assert ids[3][:3] == ids[2]
    assert ids[4][:5] == ids[3]


def test_a_picture_stays_when_the_other_parallel_call_is_given_up():
    """The user goes on: the call that waits is left out, and the picture is not."""
    seen = chat_result("a", [{"type": "text", "text": "see"}, PICTURE])
    items = [HELLO, chat_calls("a", "b"), seen, {"role": "user", "content": "stop"}]
    view = right(load(items, "openai"), "openai")
    assert [message.role.value for message in view] == [
        *("user", "assistant", "tool", "user", "user")
    ]


@pytest.mark.parametrize("source", ["openai", "openai_responses"])
def test_a_custom_calls_result_is_not_made_anew(source):
    """What is acceptable stays the same object, though its call says more about the result."""
    custom = {"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    items = {
        "openai": [
            {"role": "assistant", "content": None, "tool_calls": [custom]},
            chat_result("a", "done"),
        ],
        "openai_responses": [
            {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "done"},
        ],
    }
    messages = load([HELLO, *items[source]], source)
    view = right(messages, source)
    assert all(a is b for a, b in zip(view, messages, strict=True))


@pytest.mark.parametrize(
    ("picture", "shown"),
    [({"image_url": "data:image/png;base64,aGk="}, ["input_image"]), ({}, [])],
)
def test_an_output_of_another_kind_than_its_call_is_written_as_the_calls(picture, shown):
    """A picture within it is an input_image then; a screenshot without a picture is left out."""
    shot = {"type": "computer_screenshot", **picture}
    items = [
        HELLO,
        {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
        {"type": "computer_call_output", "call_id": "a", "output": shot},
    ]
    view = right(load(items, "openai_responses"), "openai_responses")
    output = convert(view, "openai_responses").messages[2]
    assert output["type"] == "custom_tool_call_output"
    assert [block["type"] for block in output["output"]] == shown


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_two_hosted_calls_with_one_id_and_no_result_are_both_left_out(provider):
    """A paused turn that the user does not let go on."""
    call = {
        "anthropic": {"type": "mcp_tool_use", "id": "x", "name": "f", "input": {},
                      "server_name": "s"},
        "bedrock": {"toolUse": {"toolUseId": "x", "name": "f", "input": {},
                                "type": "server_tool_use"}},
    }[provider]  # fmt: skip
    text = {"anthropic": {"type": "text", "text": "hello"}, "bedrock": {"text": "hello"}}[provider]
    items = [
        {"role": "user", "content": [text]},
        {"role": "assistant", "content": [call]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [text]},
    ]
    messages = load(items, provider)
    assert "duplicate_call" in [
        found.rule for found in validate([*messages[:2], messages[2]], provider)
    ]
    view = right(messages, provider)
    assert "'x'" not in repr(convert(view, provider).messages)


@pytest.mark.parametrize("call", [
    {"type": "shell_call", "call_id": "x", "action": {"commands": ["ls"]}},
    {"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"},
])  # fmt: skip
def test_a_hosted_output_does_not_answer_the_applications_call(call):
    """It is left out; the call waits on for its own output."""
    program = {"type": "program_output", "id": "p", "call_id": "x", "result": "1",
               "status": "completed"}  # fmt: skip
    messages = load([HELLO, call, program], "openai_responses")
    assert len(validate(messages, "openai_responses")) == 1
    assert right(messages, "openai_responses") == messages[:2]


def test_words_of_a_spoken_reply_are_not_said_twice():
    """They lie beside the content, also where a call that nobody answered is left out."""
    audio = {"id": "audio_1", "data": "AAAA", "expires_at": 1, "transcript": "At nine."}
    reply = {**chat_calls("a"), "audio": audio}
    view = right(load([HELLO, reply, HELLO], "openai"), "openai")
    sent = convert(view, "openai").messages
    assert sent[1] == {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}


def test_the_cache_mark_in_a_tool_message_goes_back():
    """OpenRouter's; the message shows whose it is, but its text does not."""
    marked = {"type": "text", "text": "done", "cache_control": {"type": "ephemeral"}}
    items = [HELLO, chat_calls("a"), chat_result("a", [marked])]
    view = repair(load(items, "openai"), "openai")
    assert convert(view, "openai").messages == items


def test_white_space_before_a_cache_point_stays():
    """A cache point right after a document is refused."""
    document = {"document": {"format": "pdf", "name": "report", "source": {"bytes": b"%PDF"}}}
    content = [{"text": "read"}, document, {"text": "\n"}, {"cachePoint": {"type": "default"}}]
    messages = load([{"role": "user", "content": content}], "bedrock")
    assert right(messages, "bedrock") == messages
    without_point = load([{"role": "user", "content": content[:3]}], "bedrock")
    assert (
        convert(right(without_point, "bedrock"), "bedrock").messages[0]["content"] == content[:2]
    )


def test_words_beside_a_document_do_not_change_with_what_follows():
    """They were sent, so that they stay when the user says more."""
    document = {"document": {"format": "pdf", "name": "report", "source": {"bytes": b"%PDF"}}}
    said = [[document], [{"text": "sum it up"}]]
    messages = load([{"role": "user", "content": content} for content in said], "bedrock")
    told = {"text": "(Document: report)"}
    views = [right(messages[:end], "bedrock") for end in (1, 2)]
    contents = [convert(view, "bedrock").messages[0]["content"] for view in views]
    assert contents == [[document, told], [document, told, {"text": "sum it up"}]]
    together = load([{"role": "user", "content": [document, *said[1]]}], "bedrock")
    assert right(together, "bedrock") == together


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": " "}], None])
def test_a_failed_result_of_white_space_says_so(content):
    """What is left after cleaning must not be nothing."""
    items = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": content}]},
    ]  # fmt: skip
    messages = load(items, "anthropic")
    assert [found.rule for found in validate(messages, "anthropic")] == ["result_content"]
    sent = convert(right(messages, "anthropic"), "anthropic").messages
    assert sent[2]["content"][0]["content"] == "(no output)"
    bedrock = convert(right(messages, "bedrock"), "bedrock").messages
    assert bedrock[2]["content"][0]["toolResult"]["content"] == [{"text": "(no output)"}]


@pytest.mark.parametrize("source", ["openai", "openai_responses"])
def test_a_long_call_id_is_shortened_for_responses(source):
    """The same for the call and its result; one of 64 characters stays."""
    for length in (64, 65):
        given = "c" * length
        items = {
            "openai": [chat_calls(given), chat_result(given, "done")],
            "openai_responses": [
                {"type": "function_call", "call_id": given, "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": given, "output": "done"},
            ],
        }
        messages = load([HELLO, *items[source]], source)
        if source == "openai_responses":
            found = [each.rule for each in validate(messages, source)]
            assert found == ["call_id", "call_id"] * (length > 64)
        sent = convert(right(messages, "openai_responses"), "openai_responses").messages
        assert sent[1]["call_id"] == sent[2]["call_id"]
        assert (sent[1]["call_id"] == given) is (length == 64)
        assert len(sent[1]["call_id"]) <= 64
