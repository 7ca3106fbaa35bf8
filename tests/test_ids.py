"""Which strings may be ids, and how new ones are made."""

from __future__ import annotations

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import InvalidRequestError
from agent_memory.ids import check_id, new_id


@pytest.mark.parametrize(
    "good", ["a", " ", "x" * 255, "é" * 127, "😀" * 63, "a\nb", "..", "/", "\ufffd", "\x01"]
)
def test_c11_what_may_be_an_id(good):
    """1 to 255 UTF-8 bytes of anything but NUL and lone surrogates."""
    assert check_id(good, "user_id") == good


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("", "empty"),
        ("x" * 256, "256 bytes"),
        ("é" * 128, "256 bytes"),
        ("a\0", "NUL"),
        ("a\ud800", "surrogate"),
        (None, "NoneType"),
        (1, "int"),
        (b"a", "bytes"),
    ],
)
def test_c11_what_may_not_be_an_id(bad, said):
    """The error names the field and says what is wrong."""
    with pytest.raises(InvalidRequestError, match=f"session_id.*{said}"):
        check_id(bad, "session_id")


def test_a_subclass_of_str_becomes_a_plain_string():
    """Enums and the like are stored as text."""

    class Name(str):
        __slots__ = ()

    assert type(check_id(Name("a"), "user_id")) is str


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_length_is_counted_in_utf8(text):
    """An id is as long as its UTF-8 form."""
    if len(text.encode()) <= 255:
        assert check_id(text, "id") == text
    else:
        with pytest.raises(InvalidRequestError):
            check_id(text, "id")


def test_new_ids_are_uuids_of_version_7():
    """As RFC 9562 lays them out, with the current time in front."""
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= after
    assert len({new_id() for _ in range(10_000)}) == 10_000
