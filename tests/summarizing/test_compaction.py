"""What a list that a summarizer returned means (pure)."""

from __future__ import annotations

import attrs
import pytest

from agent_memory import ConversationMessage
from agent_memory.records import Covered
from rig import (
    assistant,
    call,
    dialogue,
    names,
    placed,
    result,
    snapshot_of,
    summary,
    system,
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


def exchange(name, **fields):
    return [call(name, id=f"call {name}", **fields), result(name, id=f"result {name}")]


# ------------------------------------------------------------------------- what is kept


def test_the_kept_suffix_is_matched_by_id(tail):
    """What ends the answer as it ended the history stays raw; before it is the summary."""
    assert after(snapshot_of(tail), [summary(), *tail[-2:]]) == ["S", "m7", "m8"]


def test_the_kept_suffix_is_matched_by_payload_under_new_ids(tail):
    """Kept messages made anew are the raw ones, which the view shows."""
    anew = [ConversationMessage(message.role, message.content) for message in tail[-3:]]
    assert after(snapshot_of(tail), [summary(), *anew]) == ["S", "m6", "m7", "m8"]
    assert snapshot_of(tail).interpret([summary(), *anew]).cut == 5  # the tail, not the block


def test_a_kept_message_with_another_text_under_its_id_is_shown_as_it_was_stored(tail):
    """Raw is the truth: nobody rewrites a kept message."""
    edited = attrs.evolve(tail[-1], content="say something else")
    compaction = snapshot_of(tail).interpret([summary(), tail[-2], edited])
    assert compaction.cut == 6
    assert texts(compaction.summary) == ["what was said"]


def test_equal_texts_are_told_apart_by_their_place():
    """Of several equal messages the suffix means the last ones."""
    tail = placed([user("ok", id=f"m{number}") for number in range(1, 7)])
    answer = [summary(), user("ok"), user("ok")]
    assert snapshot_of(tail).interpret(answer).cut == 4


def test_the_whole_history_returned_changes_nothing(tail):
    """Exactly what it got: everything is kept, and there is no summary."""
    compaction = snapshot_of(tail).interpret(tail)
    assert (compaction.summary, compaction.cut, compaction.dropped) == ((), 0, None)


def test_more_than_the_history_keeps_all_of_it(tail):
    """A summary before everything it got replaces nothing."""
    compaction = snapshot_of(tail).interpret([summary(), *tail])
    assert (names(compaction.summary), compaction.cut) == (["S"], 0)


def test_the_suffix_alone_is_a_window(tail):
    """No summary at all: what is not kept is only left out."""
    compaction = snapshot_of(tail).interpret(tail[-2:])
    assert (compaction.summary, compaction.cut) == ((), 6)
    assert compaction.dropped == Covered(1, 6, 6)


def test_the_newest_message_is_always_kept(tail):
    """A summary of everything leaves the newest message, which nobody may have read yet."""
    assert after(snapshot_of(tail), [summary()]) == ["S", "m8"]


def test_the_newest_exchange_is_kept_when_nothing_is():
    """The model has not seen the newest result yet: no summary takes its place."""
    tail = placed([*dialogue(5), *exchange("a")])
    assert after(snapshot_of(tail), [summary()]) == ["S", "m5", "call a", "result a"]


def test_at_least_so_much_is_kept_of_an_object_s_answer(tail):
    """The longer of two keeps wins."""
    assert after(snapshot_of(tail), [summary(), *tail[-2:]], keep_at_least=4) == [
        "S",
        *("m5", "m6", "m7", "m8"),
    ]
    assert after(snapshot_of(tail), [summary(), *tail[-4:]], keep_at_least=2) == [
        "S",
        *("m5", "m6", "m7", "m8"),
    ]


# ------------------------------------------------------------------------- widening


def test_c27_a_slice_between_call_and_result_is_widened_to_the_call():
    """Blind slicing never leaves a result without its call."""
    tail = placed([*dialogue(5), *exchange("a"), assistant(id="end")])
    answer = [summary(), *tail[-2:]]  # begins with the result
    assert after(snapshot_of(tail), answer) == ["S", "call a", "result a", "end"]
    assert snapshot_of(tail).interpret(answer).cut == 5


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")])
def test_c27_parallel_calls_stay_with_all_their_results(order):
    """Whichever result the slice begins with, and in whichever order they came."""
    results = [result(name, id=f"result {name}") for name in order]
    tail = placed([*dialogue(4), call("a", "b", "c", id="calls"), *results, assistant(id="end")])
    answer = [summary(), *tail[-2:]]
    assert after(snapshot_of(tail), answer) == ["S", "calls", *names(results_of(tail)), "end"]


def results_of(tail):
    return [message for message in tail if message.id.startswith("result")]


def test_c28_a_chat_of_exchanges_alone_can_be_cut_between_them():
    """One question and twenty exchanges: old exchanges go, the question stays."""
    exchanges = [message for name in range(20) for message in exchange(str(name))]
    tail = placed([user(id="question"), *exchanges])
    kept = after(snapshot_of(tail), [summary(), *tail[-4:]])
    assert kept == ["S", "question", "call 18", "result 18", "call 19", "result 19"]


def test_an_exchange_that_is_still_open_is_never_cut_off():
    """Its results are yet to come; a summary of everything leaves it in the tail."""
    tail = placed([*dialogue(4), call("a", "b", id="calls"), result("a", id="result a")])
    assert after(snapshot_of(tail), [summary()]) == ["S", "m3", "calls", "result a"]


def test_a_raw_message_from_the_middle_brings_its_whole_exchange(tail):
    """A summarizer that keeps one result keeps the call with it."""
    tail = placed([*dialogue(3), *exchange("a"), *dialogue(3, start=4)])
    answer = [summary(), tail[4], *tail[-2:]]
    assert after(snapshot_of(tail), answer) == ["S", "call a", "result a", "m5", "m6"]


def test_a_whole_exchange_from_the_middle_is_not_doubled():
    """Naming both of its messages is naming the exchange once."""
    tail = placed([*dialogue(3), *exchange("a"), *dialogue(3, start=4)])
    answer = [summary(), tail[3], tail[4], *tail[-2:]]
    assert after(snapshot_of(tail), answer) == ["S", "call a", "result a", "m5", "m6"]


def test_a_message_from_the_middle_that_widening_keeps_anyway_is_shown_once():
    """It is in the tail; the block does not repeat it."""
    tail = placed([*dialogue(4), *exchange("a"), assistant(id="end")])
    answer = [summary(), tail[4], tail[6]]  # the call, then the last: the result is left out
    assert after(snapshot_of(tail), answer) == ["S", "call a", "result a", "end"]


def test_a_call_that_widening_brings_back_is_not_in_the_block_as_well():
    """The summarizer keeps the exchange, with a summary between call and result."""
    tail = placed([*dialogue(4), *exchange("a"), assistant(id="end")])
    answer = [summary(), tail[4], summary("more"), tail[5], tail[6]]
    assert after(snapshot_of(tail), answer) == ["S", "S", "call a", "result a", "end"]


# ------------------------------------------------------------------------- what is withheld


def test_leading_system_messages_are_withheld_and_lifted():
    """The summarizer never sees them; they stand in the head afterwards."""
    tail = placed([system(id="s1"), system(id="s2"), *dialogue(6)])
    snapshot = snapshot_of(tail, fresh=True)
    assert names(snapshot.history) == ["m1", "m2", "m3", "m4", "m5", "m6"]
    compaction = snapshot.interpret([summary(), tail[-1]])
    assert names(compaction.head) == ["s1", "s2"]


def test_system_messages_in_the_middle_are_ordinary():
    """Only those that lead the chat are withheld."""
    tail = placed([user(id="first"), system(id="s"), *dialogue(4)])
    assert "s" in names(snapshot_of(tail, fresh=True).history)
    assert "s" in names(snapshot_of(placed([system(id="s"), *dialogue(4)])).history)


def test_pins_are_withheld_with_their_exchange():
    """A pinned result keeps its call; both are lifted in order when the cut passes them."""
    pinned = [call("a", id="call a"), result("a", id="result a", pinned=True)]
    tail = placed([*dialogue(3), *pinned, *dialogue(4, start=4)])
    snapshot = snapshot_of(tail)
    assert names(snapshot.history) == ["m1", "m2", "m3", "m4", "m5", "m6", "m7"]
    compaction = snapshot.interpret([summary(), *tail[-2:]])
    assert names(compaction.head) == ["call a", "result a"]
    assert compaction.dropped.count == 5


def test_pins_after_the_cut_stay_where_they_are():
    """They are raw in the tail until a cut passes them."""
    tail = placed([*dialogue(6), user(id="pin", pinned=True)])
    assert after(snapshot_of(tail), [summary(), tail[5]]) == ["S", "m6", "pin"]


def test_a_pinned_exchange_that_holds_the_question_is_shown_once():
    """What is lifted with a pin is not kept as a question as well."""
    group = [call("a", id="call"), user("hurry", id="hurry"), result("a", id="late", pinned=True)]
    work = [message for name in "bcd" for message in exchange(name)]
    tail = placed([user(id="first"), assistant(id="answer"), *group, *work])
    compaction = snapshot_of(tail).interpret([summary(), *tail[-2:]])
    assert names(compaction.head) == ["call", "hurry", "late"]
    assert "hurry" not in names(compaction.summary)


# ------------------------------------------------------------------------- questions


def test_c30_an_unanswered_question_is_kept():
    """The work in progress is about it, however far it has moved away."""
    work = [message for name in "abcd" for message in exchange(name)]
    tail = placed([*dialogue(2), user("why?", id="question"), *work])
    assert after(snapshot_of(tail), [summary(), *tail[-2:]]) == [
        *("S", "question", "call d", "result d"),
    ]


def test_a_question_that_was_answered_may_go():
    """Its answer is a summary's to tell."""
    work = [message for name in "ab" for message in exchange(name)]
    tail = placed(
        [user("why?", id="question"), *work, assistant("so", id="answer"), user(id="q2")]
    )
    assert after(snapshot_of(tail), [summary(), tail[-1]]) == ["S", "q2"]


def test_a_question_stays_through_a_second_compaction():
    """From the block it goes to the next block, as long as no answer has come."""
    question = placed([user("why?", id="question")])[0]
    tail = placed([message for name in "abc" for message in exchange(name)], after=5)
    snapshot = snapshot_of(tail, block=[summary(), question])
    assert after(snapshot, [summary("new"), *tail[-2:]]) == ["S", "question", "call c", "result c"]
