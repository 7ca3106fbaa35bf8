"""Which strings may be ids, and how new ones are made."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import check_id, new_id


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_makes_other_ids():
    """Random bytes that the parent has in store are not the child's as well."""
    new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "".join(new_id()[-12:] for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    theirs = {text[start : start + 12] for start in range(0, len(text), 12)}
    assert len(theirs) == 100
    assert theirs.isdisjoint(new_id()[-12:] for _ in range(1_000))


def test_threads_make_different_ids():
    """No random bytes are handed out twice."""
    with ThreadPoolExecutor(8) as threads:
        made = [*threads.map(lambda _: [new_id()[-12:] for _ in range(2_000)], range(8))]
    assert len(set(itertools.chain(*made))) == 16_000
