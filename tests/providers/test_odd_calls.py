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


def test_an_output_of_another_kind_than_its_call_is_written_as_the_calls():
    """A picture within it is an input_image then."""
    shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,aGk="}
    items = [
        HELLO,
        {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "x"},
        {"type": "computer_call_output", "call_id": "a", "output": shot},
    ]
    view = right(load(items, "openai_responses"), "openai_responses")
    output = convert(view, "openai_responses").messages[2]
    assert output["type"] == "custom_tool_call_output"
    assert [block["type"] for block in output["output"]] == ["input_image"]


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
