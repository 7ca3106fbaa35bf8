"""What a group of saves adds to a log, compared with a model of one save at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.errors import StorageConflictError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.records import same_payload
from agent_memory.storage._engine.append_plan import PendingSave, append_plan

KEY = ChatKey("u", "s", "a")


def message(number, text="same"):
    return ConversationMessage("user", text, id=f"m{number}")


def save(*messages):
    return PendingSave(KEY, messages, [entry.id.encode() for entry in messages])


@st.composite
def groups(draw):
    """A log, and saves that overlap with it and each other, with equal and other payloads."""
    ids = st.integers(0, 12)
    text = st.sampled_from(["same", "same", "same", "other"])
    log = [message(number) for number in sorted(draw(st.sets(ids, max_size=5)))]
    one = st.dictionaries(ids, text, min_size=1, max_size=4)
    saves = [
        save(*(message(number, text) for number, text in given.items()))
        for given in draw(st.lists(one, min_size=1, max_size=6))
    ]
    return log, saves


@given(groups(), st.integers(0, 3))
def test_a_group_is_as_if_each_save_came_alone(case, floor):
    """Positions, known ids and conflicts are those of one save after the other."""
    log, saves = case
    stored = {entry.id: entry.placed(floor + 1 + i, "a") for i, entry in enumerate(log)}
    last = floor + len(log)
    plan = append_plan(KEY, last, floor, saves, lambda entry: stored.get(entry.id))
    model = dict(stored)
    for one, added, outcome in zip(saves, plan.additions, plan.outcomes, strict=True):
        clashes = [e for e in one.entries if e.id in model and not same_payload(model[e.id], e)]
        if clashes:
            assert isinstance(outcome, StorageConflictError)
            assert outcome.key == KEY
            assert repr(clashes[0].id) in str(outcome)
            assert list(added) == []
            continue
        fresh = [entry for entry in one.entries if entry.id not in model]
        assert [(entry.id, entry.position) for entry, _ in added] == [
            (entry.id, last + 1 + i) for i, entry in enumerate(fresh)
        ]
        assert [encoded for _, encoded in added] == [entry.id.encode() for entry in fresh]
        last += len(fresh)
        model |= {entry.id: entry for entry, _ in added}
        assert outcome.floor == floor
        assert outcome.entries == [model[entry.id] for entry in one.entries]
    assert plan.last == last
    assert plan.added == [addition for added in plan.additions for addition in added]


def test_what_cannot_be_looked_up_fails_alone():
    """A save whose known entry cannot be read adds nothing, also of what came before it."""

    def known(entry):
        if entry.id == "m2":
            raise LookupError("unreadable")

    saves = [save(message(1), message(2)), save(message(1), message(3))]
    plan = append_plan(KEY, 4, 0, saves, known)
    assert isinstance(plan.outcomes[0], LookupError)
    assert [entry.id for entry, _ in plan.additions[0]] == []
    assert [entry.position for entry in plan.outcomes[1].entries] == [5, 6]


def test_interrupts_are_nobodys_outcome():
    """What is no Exception ends the plan."""

    def known(_entry):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        append_plan(KEY, 0, 0, [save(message(1))], known)
