"""The one form in which everything is stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import ConversationMessage, Note, Usage
from agent_memory.errors import CorruptedRecordError
from agent_memory.records import Covered, SummaryRecord
from agent_memory.storage.codec import (
    VERSION,
    decode_entry,
    decode_record,
    encode_entry,
    encode_record,
)

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=()))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(14_000, 14_284).map(lambda bits: -(2**bits))
    | st.just(10**4300 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.binary()
)
keys = texts | st.just("$agent_memory")
contents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20
)


def message(content="x", **fields):
    return ConversationMessage("user", content, id="1", timestamp=NOON, **fields)


@example("half of a pair: \ud800", {"\udc00": ["\udfff"]})
@given(contents, st.dictionaries(keys, contents, max_size=2))
def test_c01_c02_c03_every_content_comes_back(content, extra):
    """Equal by value and type, in one line of UTF-8 without NUL."""
    given_message = message(content, extra=extra, metadata=extra)
    text = encode_entry(given_message)
    assert "\n" not in text
    assert "\0" not in text
    decoded = decode_entry(text.encode(), 3, "agent")
    assert decoded == given_message
    try:
        assert repr(decoded.content) == repr(given_message.content)
    except ValueError:  # an integer beyond the interpreter's limit for decimal text
        assert decoded.content == given_message.content
    assert (decoded.position, decoded.agent_id) == (3, "agent")


def test_the_form_is_what_it_always_was():
    """Stores hold this text for years: a change here needs a new version."""
    full = message(
        [{"text": "é\u2028"}, b"\xff", {"$agent_memory": 1}, "\ud800"],
        extra={"name": "n"},
        metadata={"m": 1.0},
        run_id="r",
        pinned=True,
        usage=Usage(1, 2, 3, 4),
    )
    expected = (
        '{"v":1,"id":"1","role":"user","content":[{"text":"é\u2028"},'
        '{"$agent_memory":["bytes","/w=="]},'
        '{"$agent_memory":["dict",[["$agent_memory",1]]]},'
        '{"$agent_memory":["str","7aCA"]}],'
        '"timestamp":"2024-05-06T12:00:00+00:00","extra":{"name":"n"},"metadata":{"m":1.0},'
        '"run_id":"r","pinned":true,"usage":{"input_tokens":1,"output_tokens":2,'
        '"cached_tokens":3,"reasoning_tokens":4}}'
    )
    assert encode_entry(full) == expected
    assert decode_entry(expected, 1, "a") == full


def test_the_form_of_a_note_is_what_it_always_was():
    """As with messages."""
    note = Note("run", {"tokens": 1}, id="1", timestamp=NOON)
    text = (
        '{"v":1,"id":"1","note":"run","data":{"tokens":1},"timestamp":"2024-05-06T12:00:00+00:00"}'
    )
    assert encode_entry(note) == text
    decoded = decode_entry(text, 5, "a")
    assert (decoded, decoded.position) == (note, 5)


def test_c09_text_stays_readable():
    """No escapes for what UTF-8 can hold."""
    text = encode_entry(message("你好，世界 😀"))
    assert "你好，世界 😀" in text
    assert len(text.encode()) < 150


def record(**fields):
    return SummaryRecord(
        **{
            "summary": (message([b"\0", "\ud800"]),),
            "head": (message("head").placed(2, "agent"),),
            "position": 9,
            "message_id": "m",
            "floor": 1,
            "covered": Covered(3, 9, 7),
            "replaces": "r",
            "summarizer": "s",
            "reason": "why",
            "messages_before": 1,
            "messages_after": 2,
            "tokens_before": 3,
            "tokens_after": 4,
            "usage": Usage(1, 2),
            "id": "record",
            "created_at": NOON,
            **fields,
        }
    )


def test_a_record_comes_back_whole():
    """All fields; heads with their places."""
    decoded = decode_record(encode_record(record()), "agent")
    assert decoded == record()
    assert [(m.position, m.agent_id) for m in decoded.head] == [(2, "agent")]
    assert decode_record(encode_record(record(usage=None, summary=())), "a") == record(
        usage=None, summary=()
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "1",
        "{}",
        '{"v":"1"}',
        '{"v":true}',
        '{"v":0}',
        '{"v":1}',
        '{"v":1,"id":"1","role":"robot","content":"x","timestamp":"2024-01-01T00:00:00+00:00"}',
        '{"v":1,"id":"1","role":"user","content":"x","timestamp":"yesterday"}',
        '{"v":1,"id":"1","role":"user","timestamp":"2024-01-01T00:00:00+00:00"}',
        '{"v":1,"id":"1","note":"","data":{},"timestamp":"2024-01-01T00:00:00+00:00"}',
        '{"v":1,"id":"1","note":"n","data":[],"timestamp":"2024-01-01T00:00:00+00:00"}',
        '{"v":1,"content":{"$agent_memory":["bytes","???"]}}',
        '{"v":1,"content":{"$agent_memory":["bytes"]}}',
        '{"v":1,"content":{"$agent_memory":7}}',
        "[" * 100_000,
        "\x00" * 300,
    ],
)
def test_c25_what_is_no_entry_is_a_corrupted_record(text):
    """The error says where; nothing else is ever raised."""
    with pytest.raises(CorruptedRecordError) as caught:
        decode_entry(text, 1, "agent", location="line 7")
    assert caught.value.location == "line 7"
    with pytest.raises(CorruptedRecordError):
        decode_record(text, "agent", location="line 7")


def test_bytes_that_are_no_utf8_are_a_corrupted_record():
    """As any other damage."""
    with pytest.raises(CorruptedRecordError):
        decode_entry(b'{"v":1,"id":"\xff"}', 1, "agent")


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_no_damage_raises_anything_else(text):
    """Whatever a disk gives back, the answer is an entry or our error."""
    try:
        decode_entry(text, 1, "agent")
    except CorruptedRecordError:
        pass
    else:
        pytest.fail("random text was taken for an entry")


@given(st.data())
def test_one_changed_character_raises_nothing_else(data):
    """An entry with a damaged character is an entry or our error."""
    text = encode_entry(message([{"a": b"x"}, 1.5], usage=Usage(1, 2), extra={"n": None}))
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(texts.filter(lambda t: len(t) < 4)) + text[place + 1 :]
    try:
        decoded = decode_entry(damaged, 1, "agent")
    except CorruptedRecordError:
        return
    assert isinstance(decoded, ConversationMessage | Note)


def test_c61_a_newer_version_is_refused_with_advice():
    """An old release never guesses what a new one wrote."""
    fields = json.loads(encode_entry(message()))
    newer = json.dumps({**fields, "v": VERSION + 1})
    with pytest.raises(CorruptedRecordError, match="upgrade"):
        decode_entry(newer, 1, "agent")
    with pytest.raises(CorruptedRecordError, match="upgrade"):
        decode_record(json.dumps({"v": VERSION + 1}), "agent")


def test_a_record_with_unknown_fields_is_corrupted():
    """Fields come only with a new version."""
    fields = json.loads(encode_record(record()))
    for damaged in ({**fields, "surprise": 1}, {k: v for k, v in fields.items() if k != "floor"}):
        with pytest.raises(CorruptedRecordError):
            decode_record(json.dumps(damaged), "agent")
