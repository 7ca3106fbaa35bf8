"""Small edits of what a message says."""

from __future__ import annotations

import pytest

from agent_memory import ConversationMessage
from agent_memory.providers.text import with_prefix

_CALL = {"toolUse": {"toolUseId": "c", "name": "look", "input": {"text": "x"}}}
_RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "found", "text": "odd"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("said", "> said"),
        ([{"text": "said"}], [{"text": "> said"}]),
        ([{"type": "text", "text": "said"}], [{"type": "text", "text": "> said"}]),
        ([{"type": "output_text", "text": "a"}], [{"type": "output_text", "text": "> a"}]),
        ([_CALL, {"text": "one"}, {"text": "two"}], [_CALL, {"text": "> one"}, {"text": "two"}]),
        ([{"text": " "}, {"text": "said"}], [{"text": " "}, {"text": "> said"}]),
        ([_RESULT, {"type": "text", "text": "a"}], [_RESULT, {"type": "text", "text": "> a"}]),
        (
            [{"type": "text", "text": "a", "citations": [{"n": 1}]}],
            [{"type": "text", "text": "> a", "citations": [{"n": 1}]}],
        ),
    ],
)
def test_the_first_text_gets_the_prefix(content, expected):
    """In every provider's form; all other blocks stay."""
    message = ConversationMessage("assistant", content)
    assert with_prefix(message, "> ").content == expected
    assert message.content == content


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "  ",
        [],
        [{"text": ""}],
        [_CALL],
        [_RESULT],
        [{"image": {"format": "png", "source": {"bytes": b"\x00"}}}],
        [{"type": "thinking", "thinking": "hm", "signature": "s"}],
        ["bare"],
        7,
        {"a": 1},
    ],
)
def test_a_message_that_says_nothing_stays_as_it_is(content):
    """The same object."""
    message = ConversationMessage("assistant", content)
    assert with_prefix(message, "> ") is message


def test_the_result_of_a_tool_is_nothing_said():
    """Also where it is a plain string."""
    message = ConversationMessage("tool", "42", extra={"tool_call_id": "c"})
    assert with_prefix(message, "> ") is message


def test_everything_else_of_the_message_is_kept():
    """Id, time, run, usage, extra, metadata and the place in the log."""
    message = ConversationMessage(
        "assistant", "said", run_id="r", extra={"name": "n"}, metadata={"m": 1}, pinned=True
    ).placed(7, "agent")
    edited = with_prefix(message, "> ")
    assert (edited.position, edited.agent_id) == (7, "agent")
    plain, changed = message.to_dict(), edited.to_dict()
    assert changed == {**plain, "content": "> said"}
