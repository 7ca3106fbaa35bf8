"""Groups, cuts, open exchanges, questions and runs."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory import turns
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import parts
from agent_memory.turns import ExchangeScan
from histories import SHAPES, Piece, Said, conversations, histories, mixtures, render

ANY_HISTORY = st.one_of(histories(), mixtures())


def user(text="hi"):
    return Said("user", (Piece("text", text),))


def assistant(text="done"):
    return Said("assistant", (Piece("text", text),))


def system(text="be brief"):
    return Said("system", (Piece("text", text),))


def calls(*ids, thought=False):
    reasoning = (Piece("reasoning", "hm"),) if thought else ()
    return Said("assistant", reasoning + tuple(Piece("call", "lookup", name) for name in ids))


def results(*ids):
    return Said("tool", tuple(Piece("result", "found", name) for name in ids))


def bounds(messages):
    return [(each.start, each.stop) for each in turns.group(messages)]


def size(said, shape):
    """How many messages some turns are in a shape."""
    return len(render(said, shape))


@pytest.fixture(params=SHAPES)
def shape(request):
    return request.param


# Groups


def test_plain_messages_are_groups_of_their_own(shape):
    """Users, answers and system messages stand alone."""
    history = render([system(), user(), user(), assistant()], shape)
    kinds = [each.kind for each in turns.group(history)]
    assert kinds == ["system", "user", "user", "assistant"]


def test_an_empty_history_has_no_groups():
    """Nothing is nothing."""
    assert turns.group([]) == []
    assert turns.cut_points([]) == [0]
    assert turns.safe_start([], 5) == 0
    assert not turns.is_open([])


@pytest.mark.parametrize("answered", [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")])
def test_c27_parallel_calls_stay_with_their_results_in_any_order(shape, answered):
    """Three calls and three messages of results are one group."""
    said = [user(), calls("a", "b", "c"), *[results(name) for name in answered], assistant()]
    history = render(said, shape)
    assert bounds(history) == [(0, 1), (1, len(history) - 1), (len(history) - 1, len(history))]


def test_c27_results_in_one_message_stay_with_their_calls(shape):
    """So are three calls and one message."""
    history = render([user(), calls("a", "b", "c"), results("b", "a", "c"), assistant()], shape)
    last = len(history) - 1
    assert bounds(history) == [(0, 1), (1, last), (last, last + 1)]


def test_c27_a_cut_inside_an_exchange_moves_to_its_start(shape):
    """Wherever in the exchange one would cut, the cut lands before the call."""
    history = render([user(), calls("a", "b"), results("b"), results("a"), assistant()], shape)
    inside = range(1, len(history) - 1)
    assert {turns.safe_start(history, index) for index in inside} == {1}
    assert turns.safe_start(history, len(history) - 1) == len(history) - 1


def test_results_that_are_not_adjacent_take_what_lies_between_into_the_group(shape):
    """A word of the user's between call and result belongs to the exchange."""
    said = [user(), calls("a"), user("hurry"), results("a"), assistant()]
    history = render(said, shape)
    assert bounds(history)[1] == (1, 4)


def test_c28_a_long_chain_of_exchanges_can_be_cut_between_any_two(shape):
    """One question and twenty exchanges have a cut before each exchange."""
    said = [user()]
    for number in range(20):
        said += [calls(f"c{number}"), results(f"c{number}")]
    history = render(said, shape)
    assert turns.cut_points(history) == [0, *range(1, 42, 2)]


def test_c32_a_second_result_for_a_call_stays_in_its_group(shape):
    """Interim, then final: the first counts, the second is surplus, and no cut parts them."""
    said = [user(), calls("a"), results("a"), assistant("wait"), results("a"), assistant()]
    history = render(said, shape)
    assert bounds(history)[1] == (1, 5)
    assert [(site.index, site.id) for site in turns.surplus_results(history)] == [(4, "a")]


def test_c32_duplicate_and_stray_results_in_one_message_are_surplus(shape):
    """Of three results for one call, one counts."""
    said = [user(), calls("a"), results("a", "a", "zzz")]
    found = turns.surplus_results(render(said, shape))
    assert [site.id for site in found] == ["a", "zzz"]


def test_c31_a_stray_result_never_begins_a_kept_part(shape):
    """A result whose call was never saved stays with the message before it."""
    history = render([user(), results("zzz"), assistant()], shape)
    assert bounds(history) == [(0, 2), (2, 3)]


def test_results_at_the_very_start_are_a_group():
    """Nothing precedes them that they could join."""
    history = render([results("a"), user()], "bedrock")
    assert [each.kind for each in turns.group(history)] == ["results", "user"]


def test_an_id_used_again_after_its_result_is_a_new_exchange(shape):
    """Providers that number calls from one in each turn do not glue a chat together."""
    said = [calls("1"), results("1"), user(), calls("1"), results("1")]
    history = render(said, shape)
    assert bounds(history) == [(0, 2), (2, 3), (3, 5)]
    assert turns.surplus_results(history) == []


def test_a_result_for_an_id_used_twice_is_left_where_it_is(shape):
    """Which call it belongs to would be a guess."""
    said = [calls("1"), results("1"), user(), calls("1"), results("1"), user(), results("1")]
    assert bounds(render(said, shape)) == [(0, 2), (2, 3), (3, 5), (5, 7)]


def test_c33_reasoning_stays_with_the_calls_it_led_to(shape):
    """No cut parts reasoning from the exchange it belongs to."""
    said = [user(), calls("a", thought=True), results("a"), assistant()]
    history = render(said, shape)
    last = len(history) - 1
    assert bounds(history) == [(0, 1), (1, last), (last, last + 1)]


def test_c34_responses_items_of_one_reply_stay_together():
    """Reasoning, text and calls of one reply are items of their own, but one group."""
    reply = Said(
        "assistant",
        (Piece("reasoning", "hm"), Piece("text", "I look"), Piece("call", "lookup", "a")),
    )
    history = render([user(), reply, results("a"), assistant()], "openai_responses")
    assert bounds(history) == [(0, 1), (1, 5), (5, 6)]


def test_a_tool_that_the_provider_runs_waits_for_nobody():
    """A web search and its result sit in the assistant's own message."""
    blocks = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "text": "found"},
    ]
    history = [ConversationMessage("user", "look"), ConversationMessage("assistant", blocks)]
    assert bounds(history) == [(0, 1), (1, 2)]
    assert not turns.is_open(history)
    assert turns.unanswered_question(history) is None
    paused = [history[0], ConversationMessage("assistant", blocks[:1])]  # its result comes later
    assert not turns.is_open(paused)
    assert turns.open_calls(paused) == []


# Open and dead


def test_c29_a_call_without_result_leaves_the_history_open(shape):
    """The exchange waits, and so does whoever wants to cut."""
    history = render([user(), calls("a")], shape)
    assert turns.is_open(history)
    assert turns.group(history)[-1].open
    assert turns.cut_points(history) == [0, 1]
    assert turns.safe_start(history, len(history)) == 1


def test_c29_the_first_of_two_parallel_results_leaves_it_open(shape):
    """It closes with the last result."""
    history = render([user(), calls("a", "b"), results("a")], shape)
    assert turns.is_open(history)
    assert [site.id for site in turns.open_calls(history)] == ["b"]
    closed = render([user(), calls("a", "b"), results("a"), results("b")], shape)
    assert not turns.is_open(closed)
    assert turns.safe_start(closed, len(closed)) == len(closed)


@pytest.mark.parametrize("after", [user("again"), assistant("sorry"), system()])
def test_c31_another_message_closes_a_call_as_dead(shape, after):
    """A process died between call and result; the chat went on."""
    history = render([user(), calls("a"), after], shape)
    assert not turns.is_open(history)
    assert [site.id for site in turns.dead_calls(history)] == ["a"]
    assert bounds(history) == [(0, 1), (1, 2), (2, 3)]


def test_c31_a_word_beside_the_results_closes_the_rest_as_dead():
    """One message may hold a result and the user's next words."""
    last = Said("tool", (Piece("result", "found", "a"), Piece("text", "go on")))
    history = render([user(), calls("a", "b"), last], "anthropic")
    assert not turns.is_open(history)
    assert [site.id for site in turns.dead_calls(history)] == ["b"]


def test_c34_parallel_calls_as_items_of_their_own_wait_together():
    """Two function_call items in a row are one turn, not a dead call and an open one."""
    history = render([user(), calls("a", "b"), results("b")], "openai_responses")
    assert turns.is_open(history)
    assert [site.id for site in turns.open_calls(history)] == ["a"]


# Questions


def test_c30_a_question_followed_only_by_tool_work_is_unanswered(shape):
    """Calls, results and text beside calls are no answer."""
    busy = Said("assistant", (Piece("text", "one moment"), Piece("call", "lookup", "b")))
    said = [user(), calls("a"), results("a"), busy, results("b")]
    if shape == "openai_responses":  # there the text is a message of its own
        said = [user(), calls("a"), results("a"), calls("b"), results("b")]
    assert turns.unanswered_question(render(said, shape)) == range(1)


def test_c30_an_answer_ends_it(shape):
    """Text without calls answers."""
    history = render([user(), calls("a"), results("a"), assistant()], shape)
    assert turns.unanswered_question(history) is None


def test_c30_neighbours_are_one_question(shape):
    """Two messages in a row are one run."""
    history = render([user(), assistant(), user("a"), user("b"), calls("a")], shape)
    assert turns.unanswered_question(history) == range(2, 4)


def test_c30_a_later_word_is_a_second_question(shape):
    """What the user adds in the middle of the work does not replace the task."""
    history = render([user(), calls("a"), results("a"), user("and b"), calls("b")], shape)
    assert turns.unanswered_questions(history) == [range(1), range(3, 4)]
    assert turns.unanswered_question(history) == range(1)


@pytest.mark.parametrize("reply", [(), (Piece("reasoning", "hm"),), (Piece("text", "  "),)])
def test_c30_silence_is_no_answer(reply):
    """Reasoning alone, blanks and nothing at all leave the question open."""
    history = render([user(), Said("assistant", reply)], "anthropic")
    assert turns.unanswered_question(history) == range(1)


# Runs


def with_runs(*ids):
    return [ConversationMessage("user", "x", run_id=run_id) for run_id in ids]


def test_runs_are_blocks_of_one_id_and_an_id_that_comes_back_opens_another():
    """Ids are not collected across the chat."""
    found = turns.runs(with_runs("a", "a", "b", "a"))
    assert found == [range(2), range(2, 3), range(3, 4)]


def test_neighbours_without_a_run_form_one_block():
    """The conservative reading: what is not told apart is not split."""
    found = turns.runs(with_runs(None, None, "a", None))
    assert found == [range(2), range(2, 3), range(3, 4)]


def test_a_history_without_runs_is_split_by_user_turns(shape):
    """A turn begins where the user speaks after somebody else did."""
    said = [system(), user(), calls("a"), results("a"), assistant(), user(), user(), assistant()]
    history = render(said, shape)
    assert turns.runs(history) == [range(5), range(5, 8)]


def test_a_word_inside_an_exchange_opens_no_run(shape):
    """A run never begins inside an exchange."""
    history = render([user(), calls("a"), user("hurry"), results("a"), user()], shape)
    assert turns.runs(history) == [range(4), range(4, 5)]


def test_no_messages_have_no_runs():
    """Nothing is nothing."""
    assert turns.runs([]) == []


def test_leading_system_counts_only_the_head():
    """System messages further on are not part of the head."""
    roles = ["system", "developer", "user", "system"]
    assert turns.leading_system([ConversationMessage(role, "x") for role in roles]) == 2
    assert turns.leading_system([ConversationMessage("system", "x")]) == 1


# Splitting


def test_split_recent_keeps_pairs():
    """Two messages a pair, the newest ones."""
    history = [ConversationMessage("user" if i % 2 == 0 else "assistant", "x") for i in range(10)]
    old, recent = turns.split_recent(history, 2)
    assert (old, recent) == (history[:6], history[6:])


def test_c27_split_recent_widens_to_whole_exchanges(shape):
    """A keep that would begin with a result begins with its call."""
    history = render([user(), calls("a", "b"), results("a"), results("b"), assistant()], shape)
    old, recent = turns.split_recent(history, 1)
    assert (old, recent) == (history[:1], history[1:])


@pytest.mark.parametrize("keep_last", [0, -1, 1.5, True, None])
def test_split_recent_refuses_to_keep_nothing(keep_last):
    """Less than one pair, or no number, is a mistake of the caller's."""
    with pytest.raises(InvalidRequestError, match="keep_last"):
        turns.split_recent([], keep_last)


def test_safe_start_refuses_a_negative_index():
    """Counting from the end is not meant."""
    with pytest.raises(InvalidRequestError, match="at least 0"):
        turns.safe_start([], -1)


# Properties


@given(history=ANY_HISTORY)
def test_groups_partition_the_history(history):
    """They follow each other without gaps, and only the last may be open."""
    found = turns.group(history)
    assert [i for each in found for i in range(each.start, each.stop)] == [*range(len(history))]
    assert not any(each.open for each in found[:-1])


@given(history=ANY_HISTORY)
def test_no_cut_parts_a_call_from_its_result_or_begins_with_one(history):
    """Checked without the code under test: by the ids that occur once."""
    ids = [[(p.kind, p.id) for p in parts(message) if p.id] for message in history]
    flat = [pair for message in ids for pair in message]
    for cut in turns.cut_points(history)[1:]:
        before = {pair for message in ids[:cut] for pair in message}
        after = {pair for message in ids[cut:] for pair in message}
        once = {i for kind, i in flat if kind == "call" and flat.count(("call", i)) == 1}
        split = {i for i in once if ("call", i) in before and ("result", i) in after}
        assert split == set()
        if cut < len(history):
            assert not any(part.kind == "result" for part in parts(history[cut]))


@given(history=ANY_HISTORY, data=st.data())
def test_cuts_only_disappear_as_a_history_goes_on(history, data):
    """What is one group in a prefix is never parted by what follows."""
    stop = data.draw(st.integers(0, len(history)))
    grown = {cut for cut in turns.cut_points(history) if cut < stop}
    assert grown <= set(turns.cut_points(history[:stop]))


@given(said=conversations(wild=False), shape=st.sampled_from(SHAPES), data=st.data())
def test_closed_groups_stay_as_they_are(said, shape, data):
    """In a chat without late results, all groups stay but one that may still go on."""
    history = render(said, shape)
    stop = data.draw(st.integers(0, len(history)))
    closed = [each for each in turns.group(history[:stop]) if not each.open]
    whole = turns.group(history)[: len(closed)]
    if closed and may_go_on(history, closed[-1], stop):
        assert whole.pop().start == closed.pop().start
    assert closed == whole


def may_go_on(history, group, stop):
    """Whether a group at the end of a prefix holds reasoning and the assistant goes on."""
    thinks = any(
        part.kind == "reasoning" for m in history[group.start : stop] for part in parts(m)
    )
    following = history[stop].role if stop < len(history) else None
    return group.stop == stop and thinks and following == "assistant"


def test_a_reply_that_comes_in_items_stays_one_group_as_it_grows():
    """Reasoning, a word and a call of one reply: the call cannot do without the reasoning."""
    reply = Said("assistant", (Piece("reasoning", "hm"), *assistant("wait").pieces))
    called = Said("assistant", (Piece("call", "lookup", "a"),))
    history = render([user(), reply, called, results("a")], "openai_responses")
    assert bounds(history[:3]) == [(0, 1), (1, 3)]
    assert bounds(history[:4]) == [(0, 1), (1, 4)]
    assert bounds(history) == [(0, 1), (1, 5)]


@given(history=ANY_HISTORY)
def test_a_safe_start_is_a_cut_and_not_after_the_index(history):
    """For each index there is the largest cut up to it."""
    cuts = turns.cut_points(history)
    for index in range(len(history) + 2):
        found = turns.safe_start(history, index)
        assert found in cuts
        assert not any(found < cut <= index for cut in cuts)


@given(history=ANY_HISTORY)
def test_runs_and_questions_are_ranges_of_the_history(history):
    """Runs cover it; questions hold only user messages that nothing answered."""
    assert [i for run in turns.runs(history) for i in run] == [*range(len(history))]
    asked = [i for run in turns.unanswered_questions(history) for i in run]
    assert all(history[index].role == "user" for index in asked)


@given(history=ANY_HISTORY)
def test_calls_are_answered_open_or_dead(history):
    """An open history has open calls, or ends in reasoning; a closed one has none."""
    waiting = turns.open_calls(history)
    dead = turns.dead_calls(history)
    assert not {(s.index, s.id) for s in waiting} & {(s.index, s.id) for s in dead}
    if not turns.is_open(history):
        assert waiting == []


def steps(job, rounds):
    """How many calls of functions, Python's own included, a job takes on such a history."""
    said = [calls("first")]
    for number in range(rounds):
        said += [user(), calls(f"c{number}", "x"), results(f"c{number}")]
    history = render([*said, results("first")], "bedrock")
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        job(history)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("job", [turns.group, turns.is_open, turns.runs, turns.cut_points])
def test_twice_the_history_takes_twice_the_steps(job):
    """Linear, also with a result that arrives at the very end and ids used again and again."""
    assert steps(job, 400) <= 2.1 * steps(job, 200)


@settings(max_examples=200, deadline=None)
@given(history=st.one_of(histories(), mixtures()))
def test_whether_a_history_is_open_is_told_from_its_end(history):
    """As a pass over all of it would tell, at every length."""
    for length in range(len(history) + 1):
        assert turns.is_open(history[:length]) == ExchangeScan(history[:length]).open


@pytest.mark.parametrize("shape", SHAPES)
def test_c111_what_is_said_before_a_call_is_no_answer(shape):
    """A Responses reply has it as an item of its own; the question is still worked on."""
    narrated = [
        Said("user", (Piece("text", "find it"),)),
        Said("assistant", (Piece("text", "Let me look."),)),
        Said("assistant", (Piece("call", "lookup", "call_1"),)),
        Said("tool", (Piece("result", "found 3", "call_1"),)),
    ]
    history = render(narrated, shape)
    assert turns.unanswered_questions(history) == [range(1)]
    answered = [*narrated, Said("assistant", (Piece("text", "There are 3."),))]
    assert turns.unanswered_questions(render(answered, shape)) == []
    assert turns.working_turn(render(answered, shape)) == range(1)
