"""Validating and repairing random histories, in every form for every provider."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import ConversationMessage, turns
from agent_memory.providers import from_openai, parts, repair, validate
from agent_memory.providers.parsing import format_named, in_context
from agent_memory.providers.repairing import RepairPass
from agent_memory.providers.violations import open_sites_of
from histories import SHAPES, Piece, Said, conversations, histories, mixtures, render

ANY_HISTORY = st.one_of(
    histories(max_turns=10), mixtures(), histories(rare=True, max_turns=10), mixtures(rare=True)
)
AIRLINE = Path(__file__).parents[3] / "shared" / "data" / "airline.jsonl"
PROVIDERS = st.sampled_from(SHAPES)


def flattened(messages):
    """All blocks in order, by who says them and what they say; a string is a block of text."""
    return [
        (
            "user" if message.role == "tool" else message.role.value,
            part.kind,
            part.id,
            part.text,
            part.is_error,
        )
        for message in messages
        for part in parts(message)
    ]


@given(history=ANY_HISTORY, provider=PROVIDERS)
def test_a_repaired_history_has_no_violations(history, provider):
    """Nothing that the provider would refuse is left."""
    assert validate(repair(history, provider), provider) == []


@given(history=ANY_HISTORY, provider=PROVIDERS)
def test_repairing_again_changes_nothing(history, provider):
    """The same objects come back."""
    view = repair(history, provider)
    assert all(a is b for a, b in zip(repair(view, provider), view, strict=True))


@given(history=ANY_HISTORY, provider=PROVIDERS)
def test_equal_histories_give_equal_views(history, provider):
    """Ids and times included, and each id once."""
    view = repair(history, provider)
    assert repair(list(history), provider) == view
    assert len({message.id for message in view}) == len(view)


@given(history=ANY_HISTORY, provider=PROVIDERS)
def test_the_history_itself_stays_as_it_is(history, provider):
    """A view is a view."""
    before = [message.to_dict() for message in history]
    repair(history, provider)
    assert [message.to_dict() for message in history] == before


@given(history=ANY_HISTORY, provider=PROVIDERS, data=st.data())
def test_views_grow_only_at_their_end(history, provider, data):
    """The view of a prefix begins the view of the whole, but for what is open at its end."""
    stop = data.draw(st.integers(0, len(history)))
    prefix = history[:stop]
    shown = flattened(repair(prefix, provider))
    while turns.is_open(prefix) or (paused := paused_at(prefix, provider)) is not None:
        prefix = prefix[: turns.group(prefix)[-1].start if turns.is_open(prefix) else paused]
    settled = flattened(repair(prefix, provider))
    assert shown[: len(settled)] == settled
    assert flattened(repair(history, provider))[: len(settled)] == settled


def paused_at(history, provider):
    """The message with the first hosted call that the provider may still go on with."""
    decisions = RepairPass(history, format_named(provider))
    decisions.run()
    waiting = [ref.source for ref in decisions._hosted.values() if ref.alive]
    return min(waiting, default=None)


def test_a_hosted_call_that_the_user_did_not_wait_for_leaves_the_view():
    """As it is sent back to go on, and refused once the user says something else."""
    question = ConversationMessage("user", "find it")
    paused = ConversationMessage(
        "assistant",
        [
            {"type": "text", "text": "searching"},
            {"type": "server_tool_use", "id": "srv_0", "name": "web_search", "input": {}},
        ],
    )
    change = ConversationMessage("user", "never mind")
    waiting = flattened(repair([question, paused], "anthropic"))
    assert [kind for _, kind, *_ in waiting] == ["text", "text", "call"]
    given_up = flattened(repair([question, paused, change], "anthropic"))
    assert given_up == [*waiting[:2], ("user", "text", None, "never mind", False)]


@given(said=conversations(wild=False), provider=PROVIDERS)
def test_what_is_fine_stays(said, provider):
    """Every block of a proper chat is in its view, in order."""
    history = render(said, provider)
    assert flattened(repair(history, provider)) == flattened(history)


@given(said=conversations(wild=False), source=PROVIDERS, provider=PROVIDERS)
def test_a_proper_chat_in_another_form_loses_no_call_result_or_text(said, source, provider):
    """Only what the other form has no place for, such as reasoning."""
    told = ("text", "call", "result", "media")
    history = render(said, source)
    before = [block[:4] for block in flattened(history) if block[1] in told]
    after = [block[:4] for block in flattened(repair(history, provider)) if block[1] in told]
    assert sorted(map(str, after)) == sorted(map(str, before))


@given(history=ANY_HISTORY, provider=st.sampled_from(["anthropic", "bedrock"]))
def test_c33_no_reasoning_becomes_the_neighbour_of_other_reasoning(history, provider):
    """The strategy never puts two pieces side by side in a message; nor does a view."""
    for message in repair(history, provider):
        kinds = [part.kind for part in parts(message)]
        assert ("reasoning", "reasoning") not in list(pairwise(kinds))


@given(history=ANY_HISTORY)
def test_validation_and_turns_agree_on_what_is_open(history):
    """Validation looks for it from the end, without reading the whole history again."""
    # As validate() does: a call without an id is known by one that is made for it.
    sites = open_sites_of(history, in_context(history, [parts(message) for message in history]))
    assert sites == {(site.index, site.id) for site in turns.open_calls(history)}


def steps(job, rounds, provider):
    """How many calls of functions, Python's own included, a job takes."""
    call = Said("assistant", tuple(Piece("call", "lookup", name) for name in ("x", "y")))
    result = Said("tool", (Piece("result", "1", "y"), Piece("result", "1", "y")))
    said = [Said("user", (Piece("text", "hi"),)), call, result] * rounds
    history = render(said, provider)
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        job(history, provider)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("provider", SHAPES)
@pytest.mark.parametrize("job", [validate, repair])
def test_twice_the_history_takes_twice_the_steps(job, provider):
    """Linear, also where every exchange is broken."""
    assert steps(job, 200, provider) <= 2.1 * steps(job, 100, provider)


@pytest.mark.parametrize("provider", SHAPES)
def test_c34_the_airline_conversations_are_fine_for_every_provider(provider):
    """Real chats in OpenAI's form: nothing is lost on the way to a valid view."""
    if not AIRLINE.exists():
        pytest.skip("the airline conversations are not beside this checkout")
    for line in AIRLINE.read_text(encoding="utf-8").splitlines():
        history = from_openai(json.loads(line)["messages"])
        view = repair(history, provider)
        assert validate(view, provider) == []
        spoken = [block for block in flattened(history) if block[1] != "text" or block[3].strip()]
        assert [block for block in flattened(view) if block[1] != "text" or block[3]] == spoken
