"""Tests of the sliding window."""

from __future__ import annotations

import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.summarizers import SlidingWindowSummarizer


def _texts(count, **fields):
    roles = ("user", "assistant")
    return [ConversationMessage(roles[at % 2], f"m{at}", **fields) for at in range(count)]


def _exchange(call_id, results=1):
    calls = [
        {"id": f"{call_id}{at}", "type": "function", "function": {"name": "f", "arguments": ""}}
        for at in range(results)
    ]
    answers = [
        ConversationMessage("tool", "r", extra={"tool_call_id": call["id"]}) for call in calls
    ]
    return [ConversationMessage("assistant", None, extra={"tool_calls": calls}), *answers]


def test_the_newest_messages_are_kept_without_a_summary():
    """The window keeps what it is told to and says nothing of the rest."""
    history = _texts(10)
    result = SlidingWindowSummarizer(4).summarize(history, 0)
    assert result.summary == ()
    assert list(result.messages_to_keep) == history[-4:]


def test_a_history_within_the_window_needs_nothing():
    """Nothing to leave out means "not yet"."""
    assert SlidingWindowSummarizer(4).summarize(_texts(4), 0) is None
    assert SlidingWindowSummarizer(4).summarize([], 0) is None


@pytest.mark.parametrize("count", [0, -3])
def test_the_window_is_floored_at_one(count):
    """No window is empty."""
    history = _texts(6)
    assert SlidingWindowSummarizer(count).summarize(history, 0).messages_to_keep == tuple(
        history[-1:]
    )


def test_a_figure_that_is_no_int_is_refused():
    """A wrong count is an error at once."""
    with pytest.raises(InvalidRequestError, match="keep_count"):
        SlidingWindowSummarizer(2.5)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_c27_the_window_is_widened_to_whole_exchanges(keep):
    """A window that would begin with a result begins with its call instead."""
    history = [*_texts(2), *_exchange("x", results=3)]
    kept = SlidingWindowSummarizer(keep).summarize(history, 0).messages_to_keep
    assert list(kept) == history[2:]


def test_c28_one_question_and_many_exchanges_can_be_cut():
    """Between complete exchanges there is always a cut."""
    history = _texts(1)
    for at in range(20):
        history += _exchange(f"x{at}-")
    kept = SlidingWindowSummarizer(6).summarize(history, 0).messages_to_keep
    assert list(kept) == history[-6:]


def test_as_a_function_the_longer_window_wins():
    """The caller's pairs count when they ask for more, the window's own count otherwise."""
    history = _texts(20)
    assert SlidingWindowSummarizer(4)(history, 5) == history[-10:]
    assert SlidingWindowSummarizer(12)(history, 1) == history[-12:]


def test_leading_system_messages_stay():
    """The system prompt is no part of the window."""
    history = [ConversationMessage("system", "be kind"), *_texts(10)]
    assert SlidingWindowSummarizer(2)(history, 1) == [history[0], *history[-2:]]
    result = SlidingWindowSummarizer(2).summarize(history, 0)
    assert list(result.messages_to_keep) == history[-2:]


def test_the_last_run_is_named_where_the_window_ends_one():
    """A cut between runs names the run before it; a cut within a run names none."""
    history = [*_texts(4, run_id="r1"), *_texts(4, run_id="r2")]
    assert SlidingWindowSummarizer(4).summarize(history, 0).last_summarized_run_id == "r1"
    assert SlidingWindowSummarizer(3).summarize(history, 0).last_summarized_run_id is None
