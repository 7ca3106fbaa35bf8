"""Verification finds each kind of damage, names the place, and is quiet about sound stores."""

from __future__ import annotations

import sqlite3

import attrs
import pytest
from hypothesis import given

from agent_memory import ChatKey, FileChatStorage, InMemoryChatStorage, SqlChatStorage
from agent_memory.audit.verification import VerifyCounts, verify
from agent_memory.records import LogSlice
from chats_to_move import IDS, call, fill, records, result, said, user
from histories import histories

KEY = ChatKey(*IDS)


async def findings(storage):
    return [finding async for finding in verify(storage)]


@pytest.fixture
async def storage():
    async with InMemoryChatStorage() as storage:
        await fill(storage)
        yield storage


async def test_all_is_well(storage):
    """A sound store with notes, exchanges, summaries and pins has no findings."""
    verified = VerifyCounts()
    assert [f async for f in verify(storage, verified=verified)] == []
    assert (verified.chats, verified.entries) == (3, 41)
    assert verified.summaries == len(await records(storage)) > 1


async def test_one_agents_chats_are_verified_in_whichever_session_they_are():
    """An agent may be named without its users and sessions."""
    async with InMemoryChatStorage() as storage:
        for ids in (("u", "s", "one"), ("v", "t", "one"), ("u", "s", "other")):
            await storage.save_chat_message(*ids, user(1))
        verified = VerifyCounts()
        assert [f async for f in verify(storage, agent_id="one", verified=verified)] == []
    assert verified.chats == 2


def altered(storage, change):
    """Have a store read another log than it holds."""
    read = storage._read

    async def reading(key, **options):
        log = await read(key, **options)
        entries = [entry for entry in log.entries if key != KEY or entry.position != 3]
        return LogSlice(change(entries) if key == KEY else log.entries, log.floor)

    storage._read = reading


async def test_a_gap_is_found(storage):
    """A position that is missing is told with the place."""
    altered(storage, lambda entries: entries)
    (found,) = await findings(storage)
    assert (found.key, found.check, found.location) == (KEY, "positions", "position 4")
    assert "follows position 2" in found.reason


async def test_an_unanswered_call_and_a_stray_result_are_found():
    """Calls and results are paired by their ids; one that the chat ends with may be under way."""
    async with InMemoryChatStorage() as storage:
        log = [call("a"), user("hm?"), result("b"), call("c"), result("c"), result("c"), call("d")]
        await storage.save_chat_messages(*IDS, log)
        found = await findings(storage)
        assert [(f.check, f.location) for f in found] == [
            ("exchanges", "position 3"), ("exchanges", "position 6"), ("exchanges", "position 1"),
        ]  # fmt: skip
        assert "'b'" in found[0].reason
        assert "'c'" in found[1].reason
        assert "no result follows the call 'a'" in found[2].reason


@given(histories("bedrock", wild=False))
def test_sound_histories_have_no_unpaired_calls(history):
    """What nothing went wrong in is never complained about."""
    from agent_memory.audit.verification import CallWatch  # noqa: PLC0415

    watch = CallWatch()
    messages = [message.placed(n, "agent") for n, message in enumerate(history, 1)]
    complaints = [told for message in messages for told in watch.look(message)]
    assert (complaints, list(watch.unanswered())) == ([], [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"floor": 2}, "it was made at floor 2"),
        ({"position": 99}, "reaches position 99"),
        ({"message_id": "other"}, "is not the one it was made up to"),
        ({"replaces": "nobody"}, "it replaces 'nobody'"),
        ({"head": (user("other").placed(1, "guide"),)}, "its head differs from the log at"),
    ],
)
async def test_a_summary_that_does_not_fit_the_log(storage, change, told):
    """Each way in which a record can contradict the raw log is told."""
    store = storage.summaries()
    made = await store.list_summaries(KEY)
    wrong = [*made[:-1], attrs.evolve(made[-1], **change)]

    storage.summaries = lambda: _Listing(wrong)
    found = await findings(storage)
    assert [f.check for f in found] == ["summaries"]
    assert told in found[0].reason
    assert made[-1].id in found[0].location


@attrs.frozen
class _Listing:
    """A store of summaries with these records for one chat."""

    wrong: list

    async def list_summaries(self, key):
        return self.wrong if key == KEY else []

    async def load_summary(self, key):
        return None


@pytest.mark.parametrize("change", [{"first": 0}, {"last": 99}, {"count": 999}])
async def test_a_summary_that_covers_what_is_not_there(storage, change):
    """Covered messages lie within the log, and are no more than there are positions."""
    made = await storage.summaries().list_summaries(KEY)
    covered = attrs.evolve(made[0].covered, **change)
    storage.summaries = lambda: _Listing([attrs.evolve(made[0], covered=covered, replaces=None)])
    (found,) = await findings(storage)
    assert "it covers" in found.reason


async def test_damage_in_files(tmp_path):
    """The file store's own checks are told once, with file, line and byte; torn batches too."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, said(5))
        await storage.save_chat_messages("bob", "s", "a", said(2))
    log = tmp_path / "ada" / "hike" / "guide.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[3] = b"x" * (len(lines[3]) - 1) + b"\n"
    log.write_bytes(b"".join(lines))
    other = tmp_path / "bob" / "s" / "a.jsonl"
    other.write_bytes(other.read_bytes()[:-10])
    async with FileChatStorage(tmp_path) as storage:
        found = await findings(storage)
    mine = [f for f in found if f.key == KEY]
    assert any("line 4, byte" in f.location for f in mine)
    assert len({f.location for f in mine}) == len(mine)
    assert any(f.key == ChatKey("bob", "s", "a") and "never ended" in f.reason for f in found)


async def test_damage_in_a_table(tmp_path):
    """A row that cannot be read is told with table, chat and position; so is a bad record."""
    url = f"sqlite:///{tmp_path}/chats.db"
    async with SqlChatStorage(url) as storage:
        await fill(storage)
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        connection.execute(
            "UPDATE agent_memory_entries SET body = '{' WHERE position = 2 AND chat = 2"
        )
        connection.execute("UPDATE agent_memory_records SET body = '{'")
    connection.close()
    async with SqlChatStorage(url) as storage:
        found = await findings(storage)
    assert {f.check for f in found} == {"records", "summaries"}
    assert any("agent_memory_entries, chat 2, position 2" in f.location for f in found)
