"""Merging the chats of a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agent_memory import ConversationMessage
from agent_memory.storage.merging import merge_chats, merge_streams

START = datetime(2024, 1, 1, tzinfo=UTC)


def chat(agent, seconds):
    return [
        ConversationMessage(
            "user", f"{agent}{number}", timestamp=START + timedelta(seconds=second)
        ).placed(number + 1, agent)
        for number, second in enumerate(seconds)
    ]


async def stream(messages):
    for message in messages:
        yield message


def test_the_running_maximum_orders_agents_and_never_reorders_one():
    """A clock that went back holds its chat's messages together."""
    merged = merge_chats({"a": chat("a", [10, 3, 12]), "b": chat("b", [5, 10, 11])})
    assert [m.content for m in merged] == ["b0", "a0", "a1", "b1", "b2", "a2"]


def test_ties_go_by_agent_id():
    """Whatever order the agents are given in."""
    chats = {"b": chat("b", [1, 1]), "a": chat("a", [1, 1])}
    assert [m.content for m in merge_chats(chats)] == ["a0", "a1", "b0", "b1"]


def test_nothing_merges_to_nothing():
    """No agents, and agents without messages."""
    assert merge_chats({}) == []
    assert merge_chats({"a": [], "b": []}) == []


chats = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 5), max_size=6), max_size=4
).map(lambda given: {agent: chat(agent, seconds) for agent, seconds in given.items()})


@given(chats)
async def test_streams_merge_as_lists_do(given_chats):
    """The streaming form gives the same sequence."""
    streams = {agent: stream(messages) for agent, messages in given_chats.items()}
    streamed = [message async for message in merge_streams(streams)]
    assert streamed == merge_chats(given_chats)


@given(chats)
def test_every_chat_keeps_its_order(given_chats):
    """Each message once, each chat's own order kept."""
    merged = merge_chats(given_chats)
    for agent, messages in given_chats.items():
        assert [m for m in merged if m.agent_id == agent] == messages
    assert len(merged) == sum(map(len, given_chats.values()))


async def test_a_stream_is_read_one_message_ahead():
    """Merging holds one message of each chat, not the chats."""
    taken = []

    async def counted(messages):
        for message in messages:
            taken.append(message)
            yield message

    merged = merge_streams({"a": counted(chat("a", range(100)))})
    await anext(merged)
    assert len(taken) <= 2
    await merged.aclose()
