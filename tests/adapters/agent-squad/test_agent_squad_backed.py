"""from_agent_squad: their storages as ours, as far as they can be."""

from __future__ import annotations

import asyncio

import boto3
import pytest
from agent_squad.storage import DynamoDbChatStorage as TheirDynamoDb
from agent_squad.storage import InMemoryChatStorage as TheirInMemory
from squad import said

from agent_memory import (
    ConversationMessage,
    InMemoryChatStorage,
    InvalidRequestError,
    Note,
    StorageConflictError,
    StorageError,
    StorageUnavailableError,
    SummarizingChatStorage,
)
from agent_memory.adapters import AgentSquadChatStorage, from_agent_squad
from agent_memory.testing import Gate, ScriptedSummarizer
from rig import IDS, dialogue


@pytest.fixture(params=["memory", "dynamodb"])
def theirs(request, monkeypatch):
    if request.param == "memory":
        return TheirInMemory()
    endpoint, table = map(request.getfixturevalue, ("moto_endpoint", "dynamodb_table"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    keys = (("PK", "HASH"), ("SK", "RANGE"))
    client = boto3.client("dynamodb", region_name="us-east-1")
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    client.close()
    return TheirDynamoDb(table, "us-east-1")


def blocks(*texts, role="user"):
    return [ConversationMessage(role, [{"text": text}]) for text in texts]


async def test_what_they_hold_is_read(theirs):
    """Role and content, at the places they have; the same each time it is read."""
    await theirs.save_chat_messages(*IDS, [said("user", "one"), said("assistant", "two")])
    storage = from_agent_squad(theirs)
    messages = await storage.fetch_chat(*IDS)
    assert [(m.role, m.content) for m in messages] == [
        ("user", [{"text": "one"}]),
        ("assistant", [{"text": "two"}]),
    ]
    assert [m.position for m in messages] == [1, 2]
    assert messages == await from_agent_squad(theirs).fetch_chat(*IDS)


async def test_what_is_saved_is_theirs_and_comes_back_as_it_was(theirs):
    """What theirs cannot hold is remembered."""
    storage = from_agent_squad(theirs)
    message = ConversationMessage(
        "user", [{"text": "hi"}, {"json": {"n": 2}}], run_id="r", metadata={"a": 1}
    )
    (stored,) = await storage.save_chat_message(*IDS, message)
    assert (stored, stored.position, stored.agent_id) == (message, 1, IDS[2])
    assert await storage.fetch_chat(*IDS) == [message]
    (held,) = await theirs.fetch_chat(*IDS)
    assert held.content == message.content
    again = await from_agent_squad(theirs).fetch_chat(*IDS)
    assert [(m.role, m.content) for m in again] == [("user", message.content)]


async def test_a_repeated_save_is_noticed(theirs):
    """By id, while it is remembered; the same id with other content is a conflict."""
    storage = from_agent_squad(theirs)
    first, second = blocks("one", "two")
    await storage.save_chat_message(*IDS, first)
    await storage.save_chat_messages(*IDS, [first, second])
    assert await storage.fetch_chat(*IDS) == [first, second]
    other = ConversationMessage("user", [{"text": "three"}], id=first.id)
    with pytest.raises(StorageConflictError):
        await storage.save_chat_message(*IDS, other)


async def test_saves_at_once_take_turns():
    """Of many tasks and event loops; no message is lost, no position twice."""
    storage = from_agent_squad(TheirInMemory())
    batch = blocks(*map(str, range(40)))

    def save(message):
        return asyncio.run(storage.save_chat_message(*IDS, message))

    saves = [storage.save_chat_message(*IDS, message) for message in batch[:20]]
    saves += [asyncio.to_thread(save, message) for message in batch[20:]]
    stored = [message for (message,) in await asyncio.gather(*saves)]
    assert sorted(message.position for message in stored) == list(range(1, 41))
    assert {m.id for m in await storage.fetch_chat(*IDS)} == {m.id for m in batch}


class HeldOnce(TheirInMemory):
    """Its first answer waits at a gate."""

    def __init__(self):
        super().__init__()
        self.gate, self.has_held = Gate(), False

    async def fetch_chat(self, *arguments):
        if not self.has_held:
            self.has_held = True
            await self.gate.passed()
        return await super().fetch_chat(*arguments)


def test_a_save_whose_loop_stopped_keeps_no_other_waiting():
    """Nobody waits for a loop that does not run; when it runs again, its save is stored too."""
    theirs = HeldOnce()
    storage = from_agent_squad(theirs)
    one, two = blocks("one", "two")
    stopped = asyncio.new_event_loop()
    saving = stopped.create_task(storage.save_chat_message(*IDS, one))
    stopped.run_until_complete(theirs.gate.reached())
    asyncio.run(storage.save_chat_message(*IDS, two))
    theirs.gate.open()
    stopped.run_until_complete(saving)
    stopped.close()
    assert asyncio.run(storage.fetch_chat(*IDS)) == [two, one]


async def test_a_session_s_chats_are_found(theirs):
    """By what their fetch_all_chats names, and by the agents that are given."""
    for agent in ("one", "two"):
        await theirs.save_chat_messages(
            "u", "s", agent, [said("user", "hi"), said("assistant", agent)]
        )
    await theirs.save_chat_messages("u", "s", "silent", [said("user", "hello?")])
    storage = from_agent_squad(theirs)
    assert [info.key.agent_id async for info in storage.list_chats("u", "s")] == ["one", "two"]
    storage = from_agent_squad(theirs, agents=["silent", "nobody"])
    infos = [(i.key.agent_id, i.entries) async for i in storage.list_chats("u", "s")]
    assert infos == [("one", 2), ("silent", 1), ("two", 2)]
    assert len(await storage.fetch_all_chats("u", "s")) == 5


async def test_reading_takes_the_same_limits(theirs):
    """As any store's."""
    storage = from_agent_squad(theirs)
    batch = blocks(*map(str, range(10)))
    await storage.save_chat_messages(*IDS, batch)
    assert await storage.fetch_chat(*IDS, 3) == batch[-3:]
    assert await storage.fetch_chat_since(*IDS, 8) == batch[8:]
    assert [message async for message in storage.iter_chat(*IDS)] == batch


async def test_what_it_cannot_do_is_refused():
    """Deleting and notes: with words that say why."""
    storage = from_agent_squad(TheirInMemory())
    await storage.save_chat_messages(*IDS, blocks("one"))
    with pytest.raises(StorageError, match="no call that deletes"):
        await storage.delete_chat(*IDS)
    with pytest.raises(InvalidRequestError, match="no notes"):
        await storage.save_note(*IDS, Note("remark"))
    with pytest.raises(InvalidRequestError, match="agent-squad ChatStorage"):
        from_agent_squad(InMemoryChatStorage())


async def test_its_failures_are_storage_errors():
    """Whatever their driver raised; whether the message is stored is not known."""

    class Broken(TheirInMemory):
        async def save_chat_messages(self, *arguments, **named):
            raise OSError("disk full")

    storage = from_agent_squad(Broken())
    with pytest.raises(StorageUnavailableError, match="disk full") as caught:
        await storage.save_chat_messages(*IDS, blocks("one"))
    assert caught.value.stored is None
    assert isinstance(caught.value.__cause__, OSError)


async def test_only_the_newest_messages_are_remembered():
    """Of a long chat: bounded memory."""
    storage = from_agent_squad(TheirInMemory())
    batch = blocks(*map(str, range(100)))
    await storage.save_chat_messages(*IDS, batch)
    read = await storage.fetch_chat(*IDS)
    assert read[-64:] == batch[-64:]
    assert [m.content for m in read] == [m.content for m in batch]
    assert all(m.id.startswith("squad-") for m in read[:36])


async def test_summaries_work_over_their_storage():
    """The view is short; theirs holds every message."""
    theirs = TheirInMemory()
    storage = SummarizingChatStorage(from_agent_squad(theirs), ScriptedSummarizer(), 4, 1)
    for message in dialogue(40):
        await storage.save_chat_messages(*IDS, blocks(message.content, role=message.role.value))
        assert len(await storage.fetch_chat(*IDS)) <= 9
    assert len(await theirs.fetch_chat(*IDS)) == 40


async def test_ours_in_theirs_in_ours_is_ours_again():
    """Nothing is wrapped twice."""
    ours = InMemoryChatStorage()
    assert from_agent_squad(AgentSquadChatStorage(ours)) is ours
