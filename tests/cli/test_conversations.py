"""Reading conversations from JSONL files."""

from __future__ import annotations

import json

import pytest

from agent_memory import InvalidRequestError
from agent_memory.cli.conversations import demo_conversation, read_conversations

GOOD = '{"id": "a", "messages": [{"role": "user", "content": "hi\u2028there"}]}'


@pytest.fixture
def file(tmp_path):
    return tmp_path / "talks.jsonl"


def test_blank_lines_marks_and_windows_line_ends_do_no_harm(file):
    """A byte order mark, blank lines and CRLF are passed over; U+2028 ends no line."""
    other = GOOD.replace('"a"', '"b"')
    file.write_bytes(b"\xef\xbb\xbf" + f"{GOOD}\r\n\r\n  \n{other}".encode())
    first, second = read_conversations(file)
    assert (first.id, second.id) == ("a", "b")
    assert first.messages[0].content == "hi\u2028there"
    assert first.source == json.loads(GOOD)["messages"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "no JSON"),
        ('{"id": "b", "messages": [NaN]}', "message 0"),
        ("[]", "no conversation"),
        ('{"id": "b"}', "no conversation"),
        ('{"messages": []}', "no conversation"),
        ('{"id": 7, "messages": []}', "id must be a string"),
        ('{"id": "", "messages": []}', "id must not be empty"),
        ('{"id": "b", "messages": 5}', "no list"),
        ('{"id": "b", "messages": {"role": "user"}}', "no list"),
        ('{"id": "b", "messages": ["hi"]}', "message 0"),
        ('{"id": "b", "messages": [{"role": "user", "content": ""}, {"n": 1}]}', "message 1"),
        ('{"id": "b", "messages": [{"role": "robot", "content": "x"}]}', "'robot'"),
        ('{"id": "b", "messages": [{"role": "user", "content": Infinity}]}', "message 0"),
        ('{"id": "b", "messages": ' + "[" * 100_000, "no JSON"),
        (
            '{"id": "b", "messages": [{"role": "user", "content": '
            + "[" * 700 + "]" * 700 + "}]}",
            "deep",
        ),
        ('{"id": "b", "messages": [], "n": ' + "9" * 5_000 + "}", "no JSON"),
        (GOOD, "already on line 1"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(file, line, told):
    """One error names the file, the line and what is wrong with it."""
    file.write_text(f"{GOOD}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidRequestError) as caught:
        read_conversations(file)
    assert str(caught.value).startswith(f"{file}, line 3: ")
    assert told in str(caught.value)


def test_bytes_that_are_no_text_are_named(file):
    """A line that is not UTF-8 is one error with its line."""
    file.write_bytes(b'{"id": "\xff"}')
    with pytest.raises(InvalidRequestError, match="line 1: it is no JSON"):
        read_conversations(file)


def test_an_empty_file_is_refused(file):
    """A file without any conversation says what a line looks like."""
    file.write_text("\n")
    with pytest.raises(InvalidRequestError, match="holds no conversation"):
        read_conversations(file)


def test_the_conversation_of_the_package():
    """The shipped conversation is long and has tool calls."""
    conversation = demo_conversation()
    assert len(conversation.messages) > 100
    assert any("tool_calls" in message.extra for message in conversation.messages)
