"""The pure state of one chat's view."""

from __future__ import annotations

import pytest

from agent_memory import ConversationMessage, LogSlice, Note, SummaryRecord, Usage
from agent_memory.records import Covered
from agent_memory.summarizing.view import ChatView
from rig import (
    assistant,
    call,
    dialogue,
    names,
    placed,
    result,
    summary,
    system,
    user,
)


def view_of(messages, *, floor=0, **options):
    return ChatView.of(LogSlice(placed(messages, after=floor), floor), **options)


def spliced(view, answer):
    snapshot = view.snapshot()
    view.splice(snapshot, snapshot.interpret(answer), "record")
    return view


def shortened(messages, keep=2, **options):
    """A view of these messages, compacted so that it keeps the newest."""
    view = view_of(messages, **options)
    return spliced(view, [summary(), *view.snapshot().history[-keep:]])


def reply(number, prompt):
    """An assistant's message whose request had so many tokens; it is the one at this position."""
    used = Usage(prompt, 100)
    message = ConversationMessage("assistant", "answer", id=f"m{number}", usage=used)
    return placed([message], after=number - 1)


def test_a_report_on_a_view_that_was_spliced_since_is_not_believed():
    """Its prompt says nothing of the view now; the next one's, which was shown this view, does."""
    view = view_of(dialogue(8), count=lambda _message: 100)
    view.append(reply(9, 800))
    assert view.tokens == 900
    spliced(view, [summary(), *view.snapshot().history[-2:]])
    assert view.tokens == 300
    view.append(reply(10, 900))
    assert view.tokens == 400
    view.newest(None)
    view.append(reply(11, 450))
    assert view.tokens == 550


# ------------------------------------------------------------------------- growing


def test_a_view_shows_the_log_and_grows_at_its_end():
    """Messages appear in order; what was returned before is not touched."""
    view = view_of(dialogue(3))
    before = view.newest(None)
    view.append(placed(dialogue(1, start=4), after=3))
    assert names(before) == ["m1", "m2", "m3"]
    assert names(view.newest(None)) == ["m1", "m2", "m3", "m4"]


def test_known_entries_are_passed_over():
    """A save that was repeated, or a read that overlaps, doubles nothing."""
    view = view_of(dialogue(3))
    assert view.append(placed(dialogue(4)))
    assert names(view.newest(None)) == ["m1", "m2", "m3", "m4"]


def test_nothing_is_added_beyond_a_gap():
    """What is missing must be read first."""
    view = view_of(dialogue(2))
    assert not view.append(placed(dialogue(1, start=4), after=3))
    assert (names(view.newest(None)), view.last) == (["m1", "m2"], 2)


def test_notes_take_a_position_and_are_not_shown():
    """The view passes them without a gap."""
    view = view_of(dialogue(2))
    note = Note("run", {"tokens": 7}).placed(3, "agent")
    assert view.append([note, *placed(dialogue(1, start=3), after=3)])
    assert (names(view.newest(None)), view.last) == (["m1", "m2", "m3"], 4)


def test_the_list_handed_out_is_the_caller_s_own():
    """Whoever clears it clears nothing here."""
    view = view_of(dialogue(3))
    view.newest(None).clear()
    view.newest(2).clear()
    assert names(view.newest(None)) == ["m1", "m2", "m3"]
    assert names(view.newest(2)) == ["m2", "m3"]


# ------------------------------------------------------------------------- splicing


def test_a_splice_replaces_the_prefix_and_keeps_what_came_since():
    """Messages appended while the summary was made follow it in order."""
    view = view_of(dialogue(6))
    snapshot = view.snapshot()
    view.append(placed(dialogue(3, start=7), after=6))
    compaction = snapshot.interpret([summary(), *snapshot.tail[-2:]])
    view.splice(snapshot, compaction, "record")
    assert names(view.newest(None)) == ["S", "m5", "m6", "m7", "m8", "m9"]
    assert (view.covered_through, view.covered_through_id, view.last) == (4, "m4", 9)


def test_covered_adds_up_over_compactions():
    """First, last and count of the messages that the summary stands for."""
    view = shortened(dialogue(6))
    assert view.covered == Covered(1, 4, 4)
    view.append(placed(dialogue(4, start=7), after=6))
    spliced(view, [summary("new"), *view.tail[-2:]])
    assert view.covered == Covered(1, 8, 8)


def test_a_message_kept_from_the_middle_is_not_covered():
    """It is verbatim in the block, until a later summary drops it."""
    view = view_of(dialogue(8))
    spliced(view, [summary(), view.tail[2], *view.tail[-2:]])
    assert names(view.newest(None)) == ["S", "m3", "m7", "m8"]
    assert view.covered == Covered(1, 6, 5)
    view.append(placed(dialogue(2, start=9), after=8))
    spliced(view, [summary("new"), *view.tail[-2:]])
    assert view.covered == Covered(1, 8, 8)


def test_the_head_comes_first_and_gathers_in_order():
    """Leading system messages, then pins in the order in which cuts pass them."""
    view = view_of([system(id="s"), *dialogue(4), user(id="pin", pinned=True), *dialogue(3)])
    spliced(view, [summary(), view.tail[-1]])
    more = [user(id="pin2", pinned=True), *dialogue(3, start=20)]
    view.append(placed(more, after=9))
    spliced(view, [summary("new"), view.tail[-1]])
    assert names(view.newest(None)) == ["s", "pin", "pin2", "S", "m22"]


# ------------------------------------------------------------------------- size


def test_leading_system_messages_do_not_count():
    """The trigger counts what could be summarized."""
    assert view_of([system(), system(), *dialogue(4), system()]).size == 5


def test_after_a_compaction_the_block_counts_and_the_head_does_not():
    """Block and tail are what the next summarizer would be given."""
    view = shortened([system(), *dialogue(6)])
    assert (len(view.head), view.size) == (1, 3)


def test_system_messages_above_a_floor_lead_a_trimmed_chat():
    """A chat that begins anew after a deletion has its own leading messages."""
    view = view_of([system(), *dialogue(2)], floor=40)
    assert (view.size, view.last) == (2, 43)


def test_tokens_leave_out_the_head():
    """Of block and tail alone."""
    view = view_of([system("x" * 50), *dialogue(2)], count=lambda message: len(message.content))
    assert view.tokens == len("say 1") * 2


# ------------------------------------------------------------------------- the newest few


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, ["m10"]),
        (2, ["s", "m10"]),
        (3, ["s", "S", "m10"]),
        (4, ["s", "S", "m9", "m10"]),
        (5, ["s", "S", "m8", "m9", "m10"]),
        (99, ["s", "S", "m7", "m8", "m9", "m10"]),
    ],
)
def test_the_newest_group_then_the_head_then_the_summary_then_older_groups(limit, expected):
    """What a limit leaves room for, in that order of importance."""
    view = shortened([system(id="s"), *dialogue(10)], keep=4)
    assert names(view.newest(limit)) == expected


def test_groups_are_shown_whole_or_not_at_all():
    """An older exchange that does not fit is left out, and all before it."""
    view = view_of([*dialogue(2), call("a"), result("a"), assistant(id="end")])
    assert names(view.newest(2)) == ["end"]
    assert len(view.newest(3)) == 3


def test_the_newest_group_is_shown_whole_even_if_it_is_larger_than_the_limit():
    """Half an exchange would be refused by every provider."""
    view = view_of([user(), call("a", "b", id="c"), result("a", id="ra"), result("b", id="rb")])
    assert names(view.newest(1)) == ["c", "ra", "rb"]


def test_a_chat_of_system_messages_alone_shows_its_newest():
    """They lead the chat, and are all there is."""
    assert names(view_of([system(id="s1"), system(id="s2")]).newest(1)) == ["s2"]


def test_a_view_without_a_tail_shows_the_newest_of_its_block():
    """Its tail was retracted: a limit does not leave it empty."""
    view = shortened([system(id="s"), *dialogue(6)])
    view.summary = (*view.summary, *placed([user(id="kept")], after=3))
    del view._tail[:]
    view._rebuild()
    assert [names(view.newest(limit)) for limit in (1, 2)] == [["kept"], ["s", "kept"]]


def test_a_limited_view_follows_what_is_appended():
    """A window computed before is not shown again afterwards."""
    view = view_of(dialogue(4))
    view.newest(2)
    view.append(placed(dialogue(1, start=5), after=4))
    assert names(view.newest(2)) == ["m4", "m5"]
    spliced(view, [summary(), *view.tail[-1:]])
    assert names(view.newest(2)) == ["S", "m5"]


# ------------------------------------------------------------------------- restoring


def record_of(view, **fields):
    given = {
        "summary": view.summary,
        "head": view.head,
        "position": view.covered_through,
        "message_id": view.covered_through_id,
        "floor": view.floor,
        "covered": view.covered,
    }
    return SummaryRecord(**{**given, **fields})


def test_c58_a_restored_view_is_the_view_that_was():
    """Pinned head, summary and tail, from the record and what follows its position."""
    chat = [system(), *dialogue(3), user(id="pin", pinned=True), *dialogue(5, start=4)]
    view = shortened(chat)
    tail = placed(chat)[view.covered_through - 1 :]
    restored = ChatView.restored(record_of(view), LogSlice(tail, 0))
    assert restored.newest(None) == view.newest(None)
    assert (restored.size, restored.covered, restored.last) == (view.size, view.covered, view.last)


@pytest.mark.parametrize(
    "fields",
    [{"floor": 3}, {"message_id": "another"}, {"position": 3}],
    ids=["floor", "id", "position"],
)
def test_a_record_of_another_log_restores_nothing(fields):
    """The floor, the position and the id of the message there must all fit."""
    view = shortened(dialogue(6))
    log = LogSlice(placed(dialogue(6))[view.covered_through - 1 :], 0)
    assert ChatView.restored(record_of(view, **fields), log) is None


def test_a_record_beyond_the_log_restores_nothing():
    """The log was purged and has begun again, shorter."""
    view = shortened(dialogue(6))
    assert ChatView.restored(record_of(view), LogSlice([], 0)) is None
