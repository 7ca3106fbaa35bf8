"""Who said what, where several agents share a conversation."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import ConversationMessage, InMemoryChatStorage
from agent_memory.attribution import attribute_senders, attribute_to_agents, filter_messages
from agent_memory.providers import text_of
from agent_memory.turns import dead_calls, open_calls, surplus_results
from histories import histories
from rig import assistant, call, result, system, texts, user


def by(agent, *messages, after=0):
    """The messages as the store gives them: with whose chat they were saved in."""
    return [message.placed(after + n, agent) for n, message in enumerate(messages, start=1)]


async def test_a_session_of_several_agents_is_attributed():
    """As an orchestrator's classifier reads it."""
    storage = InMemoryChatStorage()
    for agent in ("billing", "travel"):
        await storage.save_chat_messages(
            "u", "s", agent, [user(f"ask {agent}"), assistant(f"{agent} answers")]
        )
    seen = attribute_to_agents(await storage.fetch_all_chats("u", "s"))
    assert sorted(texts(seen)) == [
        "[billing] billing answers",
        "[travel] travel answers",
        "ask billing",
        "ask travel",
    ]


@pytest.mark.parametrize(
    "content",
    [
        [{"toolUse": {"toolUseId": "c", "name": "look", "input": {}}}],
        [{"image": {"format": "png", "source": {"bytes": b"\x00"}}}],
        [],
        "",
        None,
    ],
)
def test_c23_a_message_that_says_nothing_is_kept_as_it_is(content):
    """Its first block a tool call or an image, its content empty or None: no error."""
    messages = by("agent", ConversationMessage("assistant", content))
    assert attribute_to_agents(messages) == messages


def test_c23_every_block_is_kept():
    """The text behind a tool call gets the prefix."""
    blocks = [
        {"toolUse": {"toolUseId": "c", "name": "look", "input": {}}},
        {"text": "one"},
        {"image": {"format": "png", "source": {"bytes": b"\x00"}}},
        {"text": "two"},
    ]
    (seen,) = attribute_to_agents(by("agent", ConversationMessage("assistant", blocks)))
    expected = copy.deepcopy(blocks)
    expected[1]["text"] = "[agent] one"
    assert seen.content == expected


def test_c23_a_plain_string_is_attributed():
    """It is a text like any other."""
    (seen,) = attribute_to_agents(by("agent", assistant("said")))
    assert seen.content == "[agent] said"


def test_users_and_messages_of_no_store_stay():
    """There is nobody to name."""
    messages = [*by("agent", user("ask"), system("be brief")), assistant("not stored")]
    assert attribute_to_agents(messages) == messages


@given(histories())
def test_nothing_is_lost_whatever_the_history(history):
    """As many messages, with the same ids, each block still there."""
    placed = by("agent", *history)
    seen = attribute_to_agents(placed)
    assert [message.id for message in seen] == [message.id for message in placed]
    for before, after in zip(placed, seen, strict=True):
        assert after.extra == before.extra
        if isinstance(before.content, list):
            assert len(after.content) == len(before.content)


def test_what_other_agents_said_becomes_the_users():
    """By name; the agent's own words stay its own."""
    messages = [
        *by("billing", user("ask"), assistant("You owe 3 €.")),
        *by("travel", user("and?"), assistant("You fly at noon.")),
    ]
    seen = attribute_senders(messages, "travel", {"billing": "Bill"})
    assert [(message.role.value, message.content) for message in seen] == [
        ("user", "ask"),
        ("user", "(Agent) Bill said: You owe 3 €."),
        ("user", "and?"),
        ("assistant", "You fly at noon."),
    ]
    assert [message.id for message in seen] == [message.id for message in messages]
    assert texts(attribute_senders(messages, "other"))[1] == "(Agent) billing said: You owe 3 €."


def test_other_agents_tool_exchanges_are_left_out():
    """The one who sees them has no such tools; its own exchanges stay whole."""
    messages = [
        *by("billing", call("c1"), result("c1"), assistant("done"), system("be brief")),
        *by("travel", call("c2"), result("c2")),
    ]
    seen = attribute_senders(messages, "travel")
    assert [message.id for message in seen] == [messages[i].id for i in (2, 4, 5)]
    assert dead_calls(seen) == surplus_results(seen) == []


def test_pictures_of_others_are_named():
    """And a message takes the form of its chat."""
    blocks = [{"text": "look:"}, {"image": {"format": "png", "source": {"bytes": b"\x00"}}}]
    (seen,) = attribute_senders(by("art", ConversationMessage("assistant", blocks)), "travel")
    assert seen.content == [{"text": "(Agent) art said: look:\n[image]"}]
    assert (seen.position, seen.agent_id) == (1, "art")


@given(histories())
def test_one_of_several_agents_sees_no_calls_of_others(history):
    """Whatever they did."""
    seen = attribute_senders(by("other", *history), "me")
    assert dead_calls(seen) == surplus_results(seen) == []
    assert all(message.role.value == "user" for message in seen)
    assert all(text_of(message) or message.role.value == "user" for message in seen)


def test_a_filter_keeps_what_is_wanted():
    """In order, the same objects."""
    messages = [user("a"), assistant("b"), user("c")]
    kept = filter_messages(messages, lambda message: message.content != "b")
    assert kept == [messages[0], messages[2]]


def test_a_filter_tears_no_tool_exchange():
    """Without its result a call is nothing, and the other way round."""
    messages = [user("a"), call("c1", "c2"), result("c1"), result("c2"), assistant("b")]
    without_one = filter_messages(messages, lambda message: message is not messages[3])
    assert without_one == [messages[0], messages[4]]
    assert filter_messages(messages, lambda message: True) == messages


@given(histories(wild=False), st.randoms(use_true_random=False))
def test_a_filter_makes_no_history_worse(history, chance):
    """Whatever is filtered, no call is parted from its results."""
    kept = filter_messages(history, lambda message: chance.random() < 0.7)
    assert dead_calls(kept) == surplus_results(kept) == open_calls(kept) == []
