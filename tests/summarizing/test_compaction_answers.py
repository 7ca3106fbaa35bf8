"""Which messages of an answer are the chat's, and which the summarizer's own (pure)."""

from __future__ import annotations

import attrs
import pytest

from agent_memory import ConversationMessage, SummaryResult
from agent_memory.errors import InvalidSummaryError
from agent_memory.models.chat_model import RefusedError
from rig import (
    call,
    dialogue,
    names,
    placed,
    snapshot_of,
    summary,
    texts,
    user,
)


def after(snapshot, answer, **options):
    """The ids of block and tail after the answer has been taken over."""
    compaction = snapshot.interpret(answer, **options)
    return names([*compaction.summary, *snapshot.tail[compaction.cut :]])


@pytest.fixture
def tail():
    return placed(dialogue(8))


# ------------------------------------------------------------------------- earlier summaries


def test_an_earlier_summary_is_given_again_and_replaced(tail):
    """The history begins with it; an answer without it drops it."""
    earlier = summary("earlier")
    snapshot = snapshot_of(tail, block=[earlier])
    assert snapshot.history[0] is earlier
    compaction = snapshot.interpret([summary("new"), *tail[-2:]])
    assert texts(compaction.summary) == ["new"]
    assert compaction.dropped.count == 6


def test_an_earlier_summary_that_is_returned_stays(tail):
    """Old summary and new text: both are the block, in the order returned."""
    earlier = summary("earlier")
    compaction = snapshot_of(tail, block=[earlier]).interpret(
        [earlier, summary("new"), *tail[-2:]]
    )
    assert texts(compaction.summary) == ["earlier", "new"]


def test_a_summary_under_the_id_of_the_earlier_one_is_the_new_text(tail):
    """Summarizers may give every summary the same id: what they say now counts."""
    earlier = summary("earlier", id="summary")
    compaction = snapshot_of(tail, block=[earlier]).interpret(
        [summary("new", id="summary"), *tail[-2:]]
    )
    assert texts(compaction.summary) == ["new"]


def test_a_summary_written_into_an_old_message_s_place_is_a_summary(tail):
    """``evolve(history[0], content=…)`` is no way to keep that message: its text is new."""
    evolved = attrs.evolve(tail[0], content="what was said")
    compaction = snapshot_of(tail).interpret([evolved, *tail[-2:]])
    assert texts(compaction.summary) == ["what was said"]
    assert compaction.summary[0].position is None
    assert compaction.dropped.count == 6


def test_a_summary_written_into_the_last_old_message_is_a_summary(tail):
    """It stands where the kept suffix begins, and nothing else can be the summary."""
    evolved = attrs.evolve(tail[5], content="what was said")
    compaction = snapshot_of(tail).interpret([evolved, *tail[-2:]])
    assert (texts(compaction.summary), compaction.cut) == (["what was said"], 6)


def test_a_summary_never_shares_an_id_with_a_message_that_stays():
    """Whoever looks messages up by id finds one."""
    tail = placed(dialogue(8))
    evolved = attrs.evolve(tail[-3], content="what was said")
    compaction = snapshot_of(tail).interpret([evolved, *tail[-2:]], keep_at_least=4)
    assert texts(compaction.summary) == ["what was said"]
    assert compaction.summary[0].id not in {message.id for message in tail[compaction.cut :]}


def test_a_message_of_another_chat_is_no_message_of_this_log(tail):
    """What the history does not hold is a summary, wherever it has a position."""
    (foreign,) = placed([user("from elsewhere")], after=500)
    compaction = snapshot_of(tail).interpret([foreign, *tail[-2:]])
    assert [message.position for message in compaction.summary] == [None]


# ------------------------------------------------------------------------- bad answers


@pytest.mark.parametrize("answer", ["", "text", None, 7, {}, [], (), iter(())])
def test_c36_what_is_no_list_of_messages_is_refused(tail, answer):
    """A text, nothing, an empty list: the error says what was expected."""
    with pytest.raises(InvalidSummaryError, match="summarizer"):
        snapshot_of(tail).interpret(answer)


def test_c36_a_list_of_dicts_is_refused(tail):
    """The error names the item and its type."""
    with pytest.raises(InvalidSummaryError, match=r"item 0.*must be.*not builtins.dict"):
        snapshot_of(tail).interpret([{"role": "user", "content": "x"}])


@pytest.mark.parametrize("content", ["", "  \n", [], [{"text": "  "}], None])
def test_c36_a_blank_summary_is_refused(tail, content):
    """Nothing stands for nothing."""
    with pytest.raises(InvalidSummaryError, match="blank"):
        snapshot_of(tail).interpret([ConversationMessage("user", content), *tail[-2:]])


def test_c36_a_tool_call_of_its_own_is_refused(tail):
    """A summarizer does not act in the chat's name."""
    with pytest.raises(InvalidSummaryError, match="tool call"):
        snapshot_of(tail).interpret([call("x"), *tail[-2:]])


def test_c36_an_answer_that_repeats_a_message_is_refused(tail):
    """Kept and summarized at once, by id or made anew: nobody can say what is meant."""
    with pytest.raises(InvalidSummaryError, match="twice"):
        snapshot_of(tail).interpret([summary(), tail[-2], *tail[-2:]])
    with pytest.raises(InvalidSummaryError, match="twice"):
        snapshot_of(tail).interpret([tail[2], tail[2], *tail[-2:]])


def test_c42_messages_out_of_their_order_are_refused(tail):
    """In the summary, and across it and the kept suffix."""
    with pytest.raises(InvalidSummaryError, match="order"):
        snapshot_of(tail).interpret([tail[3], tail[1], *tail[-2:]])
    with pytest.raises(InvalidSummaryError, match="order"):
        snapshot_of(tail).interpret([summary(), tail[6], tail[4], tail[7]])


def test_c74_messages_of_another_library_are_named_with_their_modules(tail):
    """Two classes may be called ConversationMessage: the error tells which is which."""

    class Theirs:
        __module__ = "agent_squad.types"
        __qualname__ = "ConversationMessage"

    expected = (
        r"item 0 .* must be an agent_memory\.messages\.ConversationMessage, "
        r"not agent_squad\.types\.ConversationMessage"
    )
    with pytest.raises(InvalidSummaryError, match=expected):
        snapshot_of(tail).interpret([Theirs(), *tail[-2:]])
    with pytest.raises(InvalidSummaryError, match=r"agent_squad\.types\.ConversationMessage"):
        SummaryResult([Theirs()])


@pytest.mark.parametrize(
    "refusal",
    [
        {"content": [{"type": "refusal", "refusal": "I cannot."}]},
        {"content": None, "extra": {"refusal": "I cannot."}},
        {"content": [{"type": "text", "text": "Part."}, {"type": "refusal", "refusal": "No."}]},
    ],
)
def test_c70_a_refusal_is_no_summary(tail, refusal):
    """A summarizer that hands on its model's refusal has failed."""
    with pytest.raises(RefusedError, match="the model refused"):
        snapshot_of(tail).interpret([ConversationMessage("assistant", **refusal), *tail[-2:]])
