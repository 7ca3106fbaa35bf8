"""What deletes leave in SQLite's files (C109): nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest
from sql_tools import IDS, user

from agent_memory import ChatKey, SqlChatStorage
from agent_memory.records import Covered, SummaryRecord

FILES = "", "-wal", "-shm"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chats.db"


def parts(path):
    return [path.with_name(path.name + part) for part in FILES]


def occurrences(path, text):
    return [part.read_bytes().count(text.encode()) for part in parts(path) if part.exists()]


def chatty(name, count, size):
    return [user(f"{name}-SECRET-{n} " + name * size) for n in range(count)]


class Careless(sqlite3.Connection):
    """SQLite as it is by default in most builds: what is deleted stays where it is."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.execute("PRAGMA secure_delete = OFF")


@pytest.fixture
async def careless(path):
    options = {"connect_args": {"factory": Careless}}
    async with SqlChatStorage(f"sqlite:///{path}", engine_options=options) as storage:
        yield storage


@pytest.mark.parametrize("size", [1, 40, 700, 20_000])
@pytest.mark.parametrize("how", ["delete_chat", "delete_chats", "trim_chat"])
async def test_c109_deleted_text_is_gone_from_the_disk(careless, path, size, how):
    """Not in the database, its log or its index, while the store is open."""
    storage = careless
    for round_number in range(3):  # chats that lie between each other
        for name in ("gone", "kept"):
            messages = chatty(name, 7, size)
            await storage.save_chat_messages(name, f"{round_number % 2}", "a", messages)
    await storage.fetch_all_chats("gone", "0")
    assert sum(occurrences(path, "gone-SECRET")) > 0
    if how == "delete_chats":
        await storage.delete_chats("gone")
    for session in ("0", "1"):
        if how == "delete_chat":
            await storage.delete_chat("gone", session, "a")
        elif how == "trim_chat":
            await storage.save_chat_message("gone", session, "a", user("last"))
            await storage.trim_chat("gone", session, "a", 1)
    assert sum(occurrences(path, "gone-SECRET")) == 0
    assert len(await storage.fetch_all_chats("kept", "0")) == 14
    assert sum(occurrences(path, "kept-SECRET")) == 21


async def test_c109_a_deleted_summary_is_gone_from_the_disk(careless, path):
    """It tells of what was said; with its chat, and on its own."""
    summaries = careless.summaries()
    for name in ("one", "two"):
        (saved, *_) = await careless.save_chat_messages(name, "s", "a", chatty("x", 4, 1))
        record = SummaryRecord(
            summary=(user(f"{name}-SUMMARY"),),
            head=(),
            position=1,
            message_id=saved.id,
            floor=0,
            covered=Covered(1, 1, 1),
        )
        assert await summaries.save_summary(ChatKey(name, "s", "a"), record, replaces=None)
    assert sum(occurrences(path, "SUMMARY")) > 0
    await summaries.forget_summaries(ChatKey("one", "s", "a"))
    await careless.delete_chat("two", "s", "a")
    assert sum(occurrences(path, "SUMMARY")) == 0


async def test_c109_who_reads_meanwhile_only_delays_it(careless, path):
    """The delete is done; its text leaves the log when the reader has ended, without a call."""
    await careless.save_chat_messages(*IDS, chatty("gone", 20, 10))
    reading, done = threading.Event(), threading.Event()

    def read():
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM agent_memory_entries").fetchone()
        reading.set()
        done.wait(60)
        other.close()

    reader = asyncio.create_task(asyncio.to_thread(read))
    await asyncio.to_thread(reading.wait)
    assert await careless.delete_chat(*IDS) == 20
    assert await careless.fetch_chat(*IDS) == []
    assert sum(occurrences(path, "gone-SECRET")) > 0
    done.set()
    await reader
    async with asyncio.timeout(60):
        while sum(occurrences(path, "gone-SECRET")):  # noqa: ASYNC110 - a thread's work
            await asyncio.sleep(0.05)
