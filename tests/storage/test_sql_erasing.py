"""What deletes leave in SQLite's files (C109): nothing."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest
from sql_tools import IDS, executed, user

from agent_memory import ChatKey, SqlChatStorage
from agent_memory.records import Covered, SummaryRecord
from agent_memory.storage.wrapper import WrapperChatStorage

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


def checkpoints(texts):
    return sum("wal_checkpoint" in text for text in texts)


@pytest.fixture
def _one_attempt(monkeypatch):
    """However slow the machine is, none is overdue."""
    monkeypatch.setattr("agent_memory.storage.sql.sqlite.ERASING_EVERY", 600.0)


@pytest.mark.usefixtures("_one_attempt")
@pytest.mark.parametrize("wrapped", [False, True])
async def test_c109_deleting_many_chats_empties_the_log_once(careless, path, wrapped):
    """Not once for each, which takes longer than all the rest of it; also through a wrapper."""
    for number in range(30):
        await careless.save_chat_messages("gone", f"{number}", "a", chatty("gone", 3, 1))
    storage = WrapperChatStorage(careless, close_inner=False) if wrapped else careless
    with executed(careless) as texts:
        assert await storage.delete_chats("gone") == 90
        assert sum(occurrences(path, "gone-SECRET")) == 0
    assert checkpoints(texts) == 1


@pytest.mark.usefixtures("_one_attempt")
async def test_c109_deletes_at_the_same_moment_empty_the_log_once(careless, path):
    """Those that wait for the writer together."""
    for number in range(30):
        await careless.save_chat_messages("gone", f"{number}", "a", chatty("gone", 3, 1))
    async with busy_writer(careless, waiting=30):
        deletes = [
            asyncio.ensure_future(careless.delete_chat("gone", f"{number}", "a"))
            for number in range(30)
        ]
    with executed(careless) as texts:
        assert await asyncio.gather(*deletes) == [3] * 30
        assert sum(occurrences(path, "gone-SECRET")) == 0
    assert checkpoints(texts) == 1


@asynccontextmanager
async def busy_writer(storage, *, waiting):
    """Hold up the writer's thread until so many jobs wait for it."""
    writer, go_on = storage._parts().executor._write_thread, threading.Event()
    holding = asyncio.ensure_future(storage._write(lambda _chats: go_on.wait(60)))
    try:
        yield
        async with asyncio.timeout(60):
            while len(writer._lanes.get(None, ())) < waiting:  # noqa: ASYNC110 - a thread's
                await asyncio.sleep(0)
    finally:
        go_on.set()
    await holding


@pytest.mark.usefixtures("_one_attempt")
async def test_c109_a_cancelled_delete_erases_what_it_deleted(careless, path):
    """Before the cancellation is raised."""
    for number in range(2):
        await careless.save_chat_messages("gone", f"{number}", "a", chatty("gone", 3, 1))
    async with busy_writer(careless, waiting=1):
        deleting = asyncio.ensure_future(careless.delete_chats("gone"))
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    left = 3 * len([info async for info in careless.list_chats("gone")])
    assert left == 3
    assert sum(occurrences(path, "gone-SECRET")) == left


async def test_c109_saves_without_a_pause_do_not_keep_erased_text(careless, path, monkeypatch):
    """What a reader kept in the log goes at a later save, when it is overdue."""
    monkeypatch.setattr("agent_memory.storage.sql.sqlite.ERASING_EVERY", 600.0)
    await careless.save_chat_messages(*IDS, chatty("gone", 20, 10))
    with reading_now(path):
        await careless.delete_chat(*IDS)
    assert sum(occurrences(path, "gone-SECRET")) > 0
    careless._parts().executor._write_transactor._erase_by = 0.0
    await careless.save_chat_message(*IDS, user("kept"))
    assert sum(occurrences(path, "gone-SECRET")) == 0


@contextmanager
def reading_now(path):
    """Another process's reader, who keeps the log from being emptied."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM agent_memory_entries").fetchone()
    yield
    other.close()


async def test_c109_closing_erases_what_is_overdue(path):
    """Also while another process has the database open, so that SQLite leaves the log."""
    storage = SqlChatStorage(
        f"sqlite:///{path}", engine_options={"connect_args": {"factory": Careless}}
    )
    await storage.save_chat_messages(*IDS, chatty("gone", 20, 10))
    other = sqlite3.connect(path)
    other.execute("SELECT count(*) FROM agent_memory_entries").fetchone()
    with reading_now(path):
        await storage.delete_chat(*IDS)
    storage._parts().executor._write_transactor._erase_by = math.inf
    await storage.aclose()
    assert sum(occurrences(path, "gone-SECRET")) == 0
    other.close()


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
