"""Playing conversations: what a faulty store does is found out."""

from __future__ import annotations

import json

from agent_memory import InMemoryChatStorage, SummarizingChatStorage, WrapperChatStorage
from agent_memory.cli.conversations import Conversation, demo_conversation
from agent_memory.cli.replay import Played, Player
from agent_memory.providers import from_openai
from agent_memory.records import LogSlice
from agent_memory.summarizers import ExtractiveSummarizer


class Torn(WrapperChatStorage):
    """Shows the newest three messages, whatever they are."""

    async def _fetch(self, key, limit):
        return (await super()._fetch(key, limit))[-3:]


class Forgetful(WrapperChatStorage):
    """Gives the log without its second entry."""

    async def _read(self, key, **what):
        found = await super()._read(key, **what)
        return LogSlice([*found.entries[:1], *found.entries[2:]], found.floor)


async def played(storage, conversation: Conversation) -> tuple[Player, Played]:
    player, saved = Player("user"), []
    one = await player.play(storage, conversation, lambda: saved.append(1))
    assert len(saved) == len(conversation.messages)
    return player, one


async def test_the_shipped_conversation_is_played_without_a_fault():
    """Every view is right, the log is whole, and the figures are those of the conversation."""
    conversation = demo_conversation()
    player = Player("user")
    inner = InMemoryChatStorage()
    async with SummarizingChatStorage(
        inner, ExtractiveSummarizer(), 10, 2, on_event=player.on_event
    ) as storage:
        one = await player.play(storage, conversation, lambda: None)
        await player.prove(storage, one)
    assert (one.splits, one.faults) == ([], [])
    assert one.messages == one.views == len(conversation.messages)
    assert one.answers == sum(message.role == "assistant" for message in conversation.messages)
    assert one.compactions > 0
    assert one.summary
    assert len(one.view) < 30
    assert one.view_tokens < one.tokens < one.tokens_read < one.tokens_unshortened


async def test_a_store_that_tears_exchanges_is_found_out():
    """Views cut by count alone split exchanges and leave messages out; both are told."""
    _, one = await played(Torn(InMemoryChatStorage()), demo_conversation())
    assert any("tool exchange" in line for line in one.splits)
    assert any("no summary stands" in line for line in one.faults)
    assert all(line.startswith(one.conversation.id) for line in one.splits + one.faults)


async def test_a_store_that_loses_a_message_is_found_out():
    """A log that comes back without one message is not what was saved."""
    storage = Forgetful(InMemoryChatStorage())
    player, one = await played(storage, demo_conversation())
    one.faults.clear()
    await player.prove(storage, one)
    assert any("not those that were saved" in line for line in one.faults)
    assert any("not what the file says" in line for line in one.faults)


async def test_the_file_is_compared_by_type():
    """1, 1.0 and true are three values: a store that mixed them up would be found out."""
    source = [{"role": "user", "content": [{"type": "text", "text": "x", "n": 1}]}]
    storage = InMemoryChatStorage()
    player, one = await played(storage, Conversation("c", tuple(from_openai(source)), source))
    source[0]["content"][0]["n"] = 1.0
    await player.prove(storage, one)
    assert one.faults == ["the stored messages are not what the file says"]


async def test_keys_of_a_message_may_come_in_any_order():
    """A message that a file writes with its content first is the same message."""
    source = json.loads('[{"content": "hi", "role": "assistant", "refusal": null}]')
    storage = InMemoryChatStorage()
    player, one = await played(storage, Conversation("c", tuple(from_openai(source)), source))
    await player.prove(storage, one)
    assert one.faults == []
