"""Tests of cutting a history to a number of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import InvalidRequestError
from agent_memory.fitting import fit_to_tokens
from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import new_summary_id, summary_message
from agent_memory.turns import group


class _TenEach:
    def count(self, message):
        return 10


def _system():
    return ConversationMessage("system", "be kind")


def _summary():
    return summary_message("we met", like=None, summary_id=new_summary_id())


def _user(text, **fields):
    return ConversationMessage("user", text, **fields)


def _assistant(text):
    return ConversationMessage("assistant", text)


def _exchange(name, results=1):
    calls = [
        {
            "id": f"{name}{at}",
            "type": "function",
            "function": {"name": "look", "arguments": "{}"},
        }
        for at in range(results)
    ]
    return [
        ConversationMessage("assistant", None, extra={"tool_calls": calls}),
        *(
            ConversationMessage("tool", "seen", extra={"tool_call_id": call["id"]})
            for call in calls
        ),
    ]


def _fit(messages, tokens):
    return fit_to_tokens(messages, tokens, counter=_TenEach())


def test_what_fits_is_returned_whole():
    """A history within the limit comes back as it is."""
    history = [_system(), _summary(), _user("a"), _assistant("b")]
    assert _fit(history, 40) == history


def test_the_newest_messages_win():
    """Head, summary and the newest groups stay; the oldest groups go first."""
    history = [_system(), _summary(), _user("a"), _assistant("b"), _user("c"), _assistant("d")]
    assert _fit(history, 40) == [*history[:2], *history[4:]]


def test_tool_exchanges_stay_whole():
    """An exchange that does not fit as a whole is left out as a whole, and all before it."""
    exchange = _exchange("x", results=3)
    history = [_user("a"), *exchange, _user("b"), _assistant("c")]
    assert _fit(history, 50) == history[-2:]
    assert _fit(history, 60) == history[1:]


def test_the_summary_goes_before_older_messages():
    """With room for one more, the summary is worth more than the oldest message."""
    history = [_summary(), _user("a"), _assistant("b")]
    assert _fit(history, 20) == [history[0], history[2]]


def test_pinned_messages_are_kept():
    """What is pinned stays, wherever it lies."""
    history = [_user("a"), _user("rule", pinned=True), _user("b"), _assistant("c")]
    assert _fit(history, 20) == [history[1], history[3]]


def test_a_limit_below_the_newest_group_is_refused():
    """Nothing is cut in silence that cannot be cut: the error tells what it takes."""
    with pytest.raises(InvalidRequestError, match="40 tokens"):
        _fit([_user("a"), *_exchange("x", results=3)], 30)


def test_an_empty_history_fits_anywhere():
    """Nothing needs no room."""
    assert _fit([], 0) == []


@given(st.lists(st.sampled_from("uatx"), max_size=25), st.integers(10, 300))
def test_the_result_is_whole_groups_within_the_limit(kinds, limit):
    """Whatever the history, the result fits, keeps order, and no group is torn."""
    made = {
        "u": lambda at: [_user(f"u{at}")],
        "a": lambda at: [_assistant(f"a{at}")],
        "t": lambda at: _exchange(f"t{at}-", 1),
        "x": lambda at: _exchange(f"x{at}-", 3),
    }
    history = [message for at, kind in enumerate(kinds) for message in made[kind](at)]
    try:
        fitting = _fit(history, limit)
    except InvalidRequestError:
        assert 10 * (group(history)[-1].stop - group(history)[-1].start) > limit
        return
    assert 10 * len(fitting) <= limit
    if fitting:
        assert fitting == history[-len(fitting) :]
        assert len(history) - len(fitting) in {part.start for part in group(history)}
