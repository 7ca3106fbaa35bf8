"""The watch over views finds what is wrong with them."""

from __future__ import annotations

import pytest
from view_watch import ViewWatch

from agent_memory.messages import ConversationMessage
from agent_memory.providers import from_openai


def call(*ids: str) -> dict[str, object]:
    calls = [
        {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for name in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": name, "content": "ok"}


SAVED = from_openai(
    [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "do two things"},
        call("1", "2"),
        result("2"),
        result("1"),
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "do it again"},
        call("1"),
        result("1"),
        {"role": "assistant", "content": "done again"},
    ]
)
SUMMARY = ConversationMessage("user", "what was said before")


@pytest.fixture
def watch():
    watch = ViewWatch()
    for message in SAVED:
        watch.saved(message)
    return watch


@pytest.mark.parametrize(
    "view",
    [
        SAVED,
        [SUMMARY, *SAVED[2:]],
        [SUMMARY, *SAVED[6:]],
        [SAVED[0], SUMMARY, *SAVED[5:]],
        [SUMMARY, SAVED[9]],
        [*SAVED[:2], SUMMARY, *SAVED[7:]],
    ],
)
def test_a_good_view_has_no_faults(watch, view):
    """Whole exchanges, in order, ending with the newest message."""
    assert watch.split_exchanges(view) == []
    assert watch.faults(view) == []


@pytest.mark.parametrize("start", [3, 4, 8])
def test_a_split_exchange_is_found(watch, start):
    """A view that begins within an exchange splits it, whichever message begins it."""
    assert watch.split_exchanges([SUMMARY, *SAVED[start:]])


def test_a_call_without_its_results_is_found(watch):
    """A call in the head whose results are gone is a split exchange too."""
    assert watch.split_exchanges([SAVED[2], SUMMARY, *SAVED[5:]]) == [
        "message 3 is shown without the rest of its tool exchange"
    ]


@pytest.mark.parametrize(
    ("view", "told"),
    [
        ([SUMMARY, *SAVED[5:9]], "newest"),
        ([], "newest"),
        (SAVED[5:], "no summary stands"),
        ([SUMMARY, SAVED[6], SAVED[5], SAVED[9]], "another order"),
        ([SAVED[6], *SAVED], "repeats"),
        ([SUMMARY, ConversationMessage("user", "other", id=SAVED[1].id), SAVED[9]], "differs"),
    ],
)
def test_a_faulty_view_is_found(watch, view, told):
    """Messages missing, moved, repeated, changed: each is said."""
    assert any(told in line for line in watch.faults(view))


def test_a_result_without_a_call_belongs_to_nobody():
    """A stray result may stand anywhere: there is nothing it could be parted from."""
    watch, stray = ViewWatch(), from_openai([result("unknown")])
    watch.saved(stray[0])
    assert watch.split_exchanges(stray) == []
