"""The demo's promise, proved by other code than the library's: real conversations, every view."""

from __future__ import annotations

import json

import pytest
from executable import AIRLINE
from view_watch import ViewWatch

import matrix
from agent_memory import InMemoryChatStorage, SummarizingChatStorage, WrapperChatStorage
from agent_memory.cli.demo import demo_conversation, read_conversations
from agent_memory.providers.conversion import dump_message
from agent_memory.records import LogSlice
from agent_memory.summarizers import ExtractiveSummarizer

IDS = ("user", "session", "agent")


class Torn(WrapperChatStorage):
    """Shows the newest three messages, whatever they are."""

    async def _fetch(self, key, limit):
        return (await super()._fetch(key, limit))[-3:]


class Forgetful(WrapperChatStorage):
    """Gives the log without its second entry."""

    async def _read(self, key, **what):
        found = await super()._read(key, **what)
        return LogSlice([*found.entries[:1], *found.entries[2:]], found.floor)


def shipped():
    (messages,) = demo_conversation().values()
    return messages


async def faults(storage, messages, ids=IDS):
    """Save message by message, and look at the view after each; gives what is wrong with it."""
    watch, found = ViewWatch(), []
    for message in messages:
        await storage.save_chat_message(*ids, message)
        watch.saved(message)
        view = await storage.fetch_chat(*ids)
        found += [*watch.split_exchanges(view), *watch.faults(view)]
    if await storage.fetch_chat_since(*ids, 0) != list(messages):
        found.append("the stored messages are not those that were saved")
    return found


COUNTS = [(10, 2), (2, 1), (3, 2), (6, 1)]


@pytest.mark.parametrize(("trigger_at", "keep_last"), matrix.params(COUNTS, always=[(6, 1)]))
async def test_no_view_of_a_real_conversation_has_a_fault(trigger_at, keep_last):
    """Whole exchanges, in order, up to the newest message; and the log is what was saved."""
    conversations = read_conversations(AIRLINE) if AIRLINE.exists() else demo_conversation()
    inner = InMemoryChatStorage()
    async with SummarizingChatStorage(
        inner, ExtractiveSummarizer(), trigger_at, keep_last
    ) as storage:
        for name, messages in {**conversations, **demo_conversation()}.items():
            assert await faults(storage, messages, ("user", name, "agent")) == []


async def test_a_store_that_tears_exchanges_is_found_out():
    """Views cut by count alone split exchanges and leave messages out; both are told."""
    found = await faults(Torn(InMemoryChatStorage()), shipped())
    assert any("tool exchange" in line for line in found)
    assert any("no summary stands" in line for line in found)


async def test_a_store_that_loses_a_message_is_found_out():
    """A log that comes back without one message is not what was saved."""
    found = await faults(Forgetful(InMemoryChatStorage()), shipped())
    assert "the stored messages are not those that were saved" in found


@pytest.mark.skipif(not AIRLINE.exists(), reason=f"the real conversations are not at {AIRLINE}")
async def test_what_is_stored_is_what_the_file_says():
    """By type too: 1, 1.0 and true are three values. Keys of a message may change their order."""
    lines = [json.loads(line) for line in AIRLINE.read_text(encoding="utf-8").splitlines()]
    for plain, (name, messages) in zip(lines, read_conversations(AIRLINE).items(), strict=True):
        storage = InMemoryChatStorage()
        await storage.save_chat_messages(*IDS, messages)
        stored = [dump_message(message) for message in await storage.fetch_chat(*IDS)]
        assert plain["id"] == name
        assert json.dumps(stored, sort_keys=True) == json.dumps(plain["messages"], sort_keys=True)
