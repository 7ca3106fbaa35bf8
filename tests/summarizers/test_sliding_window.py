"""Tests of the sliding window."""

from __future__ import annotations

import attrs
import pytest

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.summarizers import SlidingWindowSummarizer
from agent_memory.summarizers.bounds import KeepBounds


def _texts(count, **fields):
    roles = ("user", "assistant")
    return [ConversationMessage(roles[at % 2], f"m{at}", **fields) for at in range(count)]


def _exchange(call_id, results=1, **fields):
    calls = [
        {"id": f"{call_id}{at}", "type": "function", "function": {"name": "f", "arguments": ""}}
        for at in range(results)
    ]
    answers = [
        ConversationMessage("tool", "r", extra={"tool_call_id": call["id"]}, **fields)
        for call in calls
    ]
    calling = ConversationMessage("assistant", None, extra={"tool_calls": calls}, **fields)
    return [calling, *answers]


def _run(name):
    return [
        *_texts(1, run_id=name),
        *_exchange(f"{name}-", run_id=name),
        ConversationMessage("assistant", "done", run_id=name),
    ]


def test_the_newest_turns_are_kept_without_a_summary():
    """A chat without run ids is counted by the user's turns; nothing is said of the rest."""
    history = _texts(10)
    result = SlidingWindowSummarizer(2).summarize(history, 0)
    assert result.summary == ()
    assert list(result.messages_to_keep) == history[-4:]


def test_c114_runs_are_counted_and_kept_whole():
    """Four runs of four messages: three are kept of four; of four, four leave nothing to do."""
    history = [message for name in ("r1", "r2", "r3", "r4") for message in _run(name)]
    result = SlidingWindowSummarizer(3).summarize(history, 0)
    assert list(result.messages_to_keep) == history[4:]
    assert result.last_summarized_run_id == "r1"
    assert SlidingWindowSummarizer(4).summarize(history, 0) is None
    assert SlidingWindowSummarizer().summarize(history, 0).messages_to_keep == tuple(history[12:])


def test_a_history_within_the_window_needs_nothing():
    """Nothing to leave out means "not yet"."""
    assert SlidingWindowSummarizer(2).summarize(_texts(4), 0) is None
    assert SlidingWindowSummarizer(4).summarize([], 0) is None


@pytest.mark.parametrize("count", [0, -3])
def test_c114_the_window_is_floored_at_one(count):
    """No window is empty."""
    history = _texts(6)
    kept = SlidingWindowSummarizer(count).summarize(history, 0).messages_to_keep
    assert kept == tuple(history[-2:])


def test_a_figure_that_is_no_int_is_refused():
    """A wrong count is an error at once."""
    with pytest.raises(InvalidRequestError, match="keep_count"):
        SlidingWindowSummarizer(2.5)


def test_c27_the_window_is_widened_to_whole_exchanges():
    """A run that would begin with a result begins with its call instead."""
    work = _exchange("x", results=3)
    history = [
        *_texts(2, run_id="r1"),
        attrs.evolve(work[0], run_id="r1"),
        *(attrs.evolve(message, run_id="r2") for message in work[1:]),
    ]
    kept = SlidingWindowSummarizer(1).summarize(history, 0).messages_to_keep
    assert list(kept) == history[2:]


def test_as_a_function_the_longer_window_wins():
    """The caller's pairs count when they ask for more, the window's own count otherwise."""
    history = _texts(20)
    assert SlidingWindowSummarizer(2)(history, 5) == history[-10:]
    assert SlidingWindowSummarizer(6)(history, 1) == history[-12:]


def test_leading_system_messages_stay():
    """The system prompt is no part of the window."""
    history = [ConversationMessage("system", "be kind"), *_texts(10)]
    assert SlidingWindowSummarizer(1)(history, 1) == [history[0], *history[-2:]]
    result = SlidingWindowSummarizer(1).summarize(history, 0)
    assert list(result.messages_to_keep) == history[-2:]


def test_a_run_that_is_too_long_by_itself_is_divided_between_exchanges():
    """Whoever holds the window has a limit; no run is named as dropped then."""
    history = _texts(1, run_id="r1")
    for at in range(20):
        history += _exchange(f"x{at}-", run_id="r1")
    cuts = [0, *range(1, 38, 2)]
    bounds = KeepBounds(cuts=cuts, tokens=[0] * len(cuts), length=41, total=0, max_messages=10)
    result = SlidingWindowSummarizer(1).summarize(history, 0, bounds=bounds)
    assert list(result.messages_to_keep) == history[37:]
    assert result.last_summarized_run_id is None


def test_the_last_run_is_named_where_the_window_ends_one():
    """A cut between runs names the run before it."""
    history = [*_texts(4, run_id="r1"), *_texts(4, run_id="r2")]
    assert SlidingWindowSummarizer(1).summarize(history, 0).last_summarized_run_id == "r1"
