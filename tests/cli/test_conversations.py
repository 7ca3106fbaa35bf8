"""Reading the demo's conversations, as ``import`` reads them."""

from __future__ import annotations

import pytest

from agent_memory import InvalidRequestError
from agent_memory.cli.demo import demo_conversation, read_conversations

GOOD = '{"id": "a", "messages": [{"role": "user", "content": "hi\u2028there"}]}'


@pytest.fixture
def file(tmp_path):
    return tmp_path / "talks.jsonl"


def test_blank_lines_marks_and_windows_line_ends_do_no_harm(file):
    """A byte order mark, blank lines and CRLF are passed over; U+2028 ends no line."""
    other = GOOD.replace('"a"', '"b"')
    file.write_bytes(b"\xef\xbb\xbf" + f"{GOOD}\r\n\r\n  \n{other}".encode())
    found = read_conversations(file)
    assert list(found) == ["a", "b"]
    assert found["a"][0].content == "hi\u2028there"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 3: it is not JSON"),
        ('{"id": "b", "messages": [NaN]}', "message 1: a message must be an object"),
        ('{"id": "b"}', "line 3: it is no conversation"),
        ('{"id": "", "messages": []}', "id must not be empty"),
        ('{"id": "b", "messages": 5}', "line 3: it is no conversation"),
        ('{"id": "b", "messages": [{"role": "user", "content": ""}, {"n": 1}]}', "message 2"),
        ('{"id": "b", "messages": [{"role": "robot", "content": "x"}]}', "'robot'"),
        ('{"id": "b", "messages": [{"role": "user", "content": Infinity}]}', "message 1"),
        ('{"id": "b", "messages": ' + "[" * 100_000, "line 3: it is not JSON"),
        (
            '{"id": "b", "messages": [{"role": "user", "content": '
            + "[" * 700 + "]" * 700 + "}]}",
            "line 3",
        ),
        ('{"id": "b", "messages": [], "n": ' + "9" * 5_000 + "}", "line 3: it is not JSON"),
        (GOOD, "two conversations with the id 'a'"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(file, line, told):
    """One error names the file, the line and what is wrong with it."""
    file.write_text(f"{GOOD}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidRequestError) as caught:
        read_conversations(file)
    assert str(caught.value).startswith(f"{file}")
    assert told in str(caught.value)


def test_bytes_that_are_no_text_are_named(file):
    """A line that is not UTF-8 is one error with its line."""
    file.write_bytes(GOOD.encode() + b'\n{"id": "\xff"}')
    with pytest.raises(InvalidRequestError, match="line 2: it is not JSON"):
        read_conversations(file)


def test_an_empty_file_is_refused(file):
    """A file without any conversation says what a line looks like."""
    file.write_text("\n")
    with pytest.raises(InvalidRequestError, match="holds no conversation"):
        read_conversations(file)


def test_the_conversation_of_the_package():
    """The shipped conversation is long and has tool calls."""
    (messages,) = demo_conversation().values()
    assert len(messages) > 100
    assert any("tool_calls" in message.extra for message in messages)
