"""What is particular about SQLite files and databases in memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest
from sql_tools import IDS, ask, change, contents, user

from agent_memory import (
    ChatKey,
    Note,
    SqlChatStorage,
    StorageError,
    StorageUnavailableError,
)
from agent_memory.errors import CorruptedRecordError, StorageClosedError
from agent_memory.storage.sql.sqlite import SqliteConnection, SqliteTransactor


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chats.db"


@pytest.fixture
async def storage(path):
    async with SqlChatStorage(f"sqlite:///{path}") as storage:
        yield storage


def test_rows_stand_in_the_file_as_told(path):
    """Behind the store's back: a row a chat, a row a message, JSON that people can read."""

    async def save():
        async with SqlChatStorage(f"sqlite:///{path}") as storage:
            await storage.save_chat_messages(*IDS, [user("héllo", id="one"), user(id="two")])
            await storage.save_note(*IDS, Note("run", {"cost": 1}, id="three"))
            await storage.trim_chat(*IDS, 1)

    asyncio.run(save())
    file = sqlite3.connect(path)
    columns = "user_id, session_id, agent_id, floor, last"
    chats = file.execute(f"SELECT {columns} FROM agent_memory_chats").fetchall()
    assert chats == [(*IDS, 1, 3)]
    entries = file.execute(
        "SELECT position, id, note, json_extract(body, '$.content') FROM agent_memory_entries"
    ).fetchall()
    assert entries == [(2, "two", 0, "hello"), (3, "three", 1, None)]
    file.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("normal", 1)])
async def test_durability_is_as_asked(path, durability, synchronous):
    """FULL by default, on the connection that writes; WAL in any case."""
    options = {} if durability == "full" else {"durability": durability}
    async with SqlChatStorage(f"sqlite:///{path}", **options) as storage:

        def look(chats):
            run = chats.connection.exec_driver_sql
            return [
                run(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
            ]

        asked = await storage._write(look)
    assert asked == [synchronous, "wal"]


async def test_a_long_read_does_not_block_saves(storage):
    """Reads have a thread and a connection of their own."""
    going, done = threading.Event(), threading.Event()

    def slow(chats):
        chats.connection.exec_driver_sql("SELECT * FROM agent_memory_chats")
        going.set()
        return done.wait(30)

    reading = asyncio.ensure_future(storage._query(slow))
    await asyncio.to_thread(going.wait)
    await storage.save_chat_message(*IDS, user("meanwhile"))
    assert not reading.done()
    done.set()
    assert await reading
    assert contents(await storage.fetch_chat(*IDS)) == ["meanwhile"]


async def test_a_lock_held_too_long_is_told(path):
    """Another process holds the file: waited for, then `StorageUnavailableError`."""
    async with SqlChatStorage(f"sqlite:///{path}", timeout=0.2) as storage:
        await storage.save_chat_message(*IDS, user("before"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        told = await asyncio.gather(
            *(storage.save_chat_message(*IDS, user("refused")) for _ in range(5)),
            storage.delete_chat(*IDS),
            return_exceptions=True,
        )
        assert [type(error) for error in told] == [StorageUnavailableError] * 6
        assert all(error.stored is False and "locked" in str(error) for error in told)
        assert isinstance(told[0].__cause__, sqlite3.OperationalError)
        assert contents(await storage.fetch_chat(*IDS)) == ["before"]  # readers go on
        other.execute("ROLLBACK")
        other.close()
        await storage.save_chat_message(*IDS, user("after"))
        assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]


async def test_c26_a_full_disk_stores_nothing(storage):
    """The batch is gone as a whole, earlier messages are intact, and the next save works."""
    await storage.save_chat_message(*IDS, user("before"))

    await change(storage, "PRAGMA max_page_count = 1")  # SQLite takes what the file has already
    with pytest.raises(StorageUnavailableError, match="full") as caught:
        await storage.save_chat_messages(*IDS, [user("x" * 20_000) for _ in range(5)])
    assert caught.value.stored is False
    await change(storage, "PRAGMA max_page_count = 1000000")
    await storage.save_chat_message(*IDS, user("after"))
    assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]


async def test_a_file_that_is_no_database_is_told(path):
    """Neither overwritten nor taken for an empty store."""
    path.write_bytes(b"This is not a database. " * 100)
    storage = SqlChatStorage(f"sqlite:///{path}")
    with pytest.raises(CorruptedRecordError, match="not a database"):
        await storage.fetch_chat(*IDS)
    await storage.aclose()
    assert path.read_bytes().startswith(b"This is not")


async def test_an_unreadable_row_is_told_once(storage, caplog):
    """It shows as a note at its place; one warning names the table and the row."""
    await storage.save_chat_messages(*IDS, [user("one"), user("two"), user("three")])
    await change(storage, "UPDATE agent_memory_entries SET body = '{' WHERE position = 2")
    with caplog.at_level(logging.WARNING, "agent_memory"):
        for _ in range(3):
            assert contents(await storage.fetch_chat(*IDS)) == ["one", "three"]
    (record,) = caplog.records
    assert "table agent_memory_entries, chat 1, position 2" in record.getMessage()
    log = [entry async for entry in storage.iter_log(*IDS)]
    assert isinstance(log[1], Note)
    assert (log[1].kind, log[1].position) == ("corrupted", 2)
    assert "position 2" in log[1].data["location"]
    (last,) = await storage.fetch_chat(*IDS, 1)
    assert last.content == "three"
    assert await storage.trim_chat(*IDS, 1) == 2  # what cannot be read can be removed


async def test_a_repeat_of_an_unreadable_message_is_no_guess(storage):
    """Whether it is the same message cannot be told; nothing is stored."""
    message = user("one")
    await storage.save_chat_message(*IDS, message)
    await change(storage, "UPDATE agent_memory_entries SET body = '{'")
    with pytest.raises(CorruptedRecordError, match="cannot be read") as caught:
        await storage.save_chat_messages(*IDS, [user("new"), message])
    assert "position 1" in caught.value.location
    assert len(await ask(storage, "SELECT * FROM agent_memory_entries")) == 1


async def test_memory_is_one_database_for_all_threads():
    """Each store has its own, and it is gone with the store."""
    async with SqlChatStorage("sqlite://") as one, SqlChatStorage("sqlite:///:memory:") as two:
        await one.save_chat_message(*IDS, user("one"))

        def elsewhere():
            async def look():
                await one.save_chat_message(*IDS, user("from a thread"))
                return contents(await one.fetch_chat(*IDS))

            return asyncio.run(look())

        assert await asyncio.to_thread(elsewhere) == ["one", "from a thread"]
        assert await two.fetch_chat(*IDS) == []


async def test_a_save_after_closing_is_refused(path):
    """A closed store stays closed, and its threads have ended."""
    storage = SqlChatStorage(f"sqlite:///{path}")
    await storage.save_chat_message(*IDS, user())
    executor = storage._parts().executor
    await storage.aclose()
    with pytest.raises(StorageClosedError):
        await storage.save_chat_message(*IDS, user())
    with pytest.raises(StorageClosedError):
        await storage.migrate()
    with pytest.raises(StorageClosedError):
        await executor.run(lambda _session: None)


async def test_the_writers_connection_is_closed_last(path, monkeypatch):
    """SQLite moves its log into the database when the last of two connections is closed."""
    closed, real = [], SqliteTransactor.close

    def noting(self):
        closed.append(threading.current_thread().name)
        real(self)

    storage = SqlChatStorage(f"sqlite:///{path}")
    await storage.save_chat_message(*IDS, user())
    await storage.fetch_chat(*IDS)
    monkeypatch.setattr(SqliteTransactor, "close", noting)
    await storage.aclose()
    assert closed == ["agent-memory-sql-reader", "agent-memory-sql-writer"]


async def test_closing_drains_what_is_queued(path):
    """Saves handed over before `aclose` are stored; each caller is told."""
    storage = SqlChatStorage(f"sqlite:///{path}")
    await storage.save_chat_message(*IDS, user("first"))
    saves = [asyncio.ensure_future(storage.save_chat_message(*IDS, user())) for _ in range(50)]
    for _ in range(20):
        await asyncio.sleep(0)
    await storage.aclose()
    assert [type(saved) for saved in await asyncio.gather(*saves)] == [list] * 50
    async with SqlChatStorage(f"sqlite:///{path}") as again:
        assert len(await again.fetch_chat(*IDS)) == 51


def test_a_forgotten_store_warns_once_and_its_threads_end(path):
    """Nobody closed it: one warning names it, and no thread or file stays (else this fails)."""

    async def forget():
        storage = SqlChatStorage(f"sqlite:///{path}")
        await storage.save_chat_message(*IDS, user())

    def forget_and_collect():
        asyncio.run(forget())
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"unclosed SqlChatStorage\('sqlite:") as caught:
        forget_and_collect()
    assert len(caught) == 1


def test_a_forgotten_store_does_not_keep_the_process_alive(path):
    """Its threads are daemons."""
    script = (
        "import asyncio, sys\n"
        "from agent_memory import SqlChatStorage, ConversationMessage\n"
        "storage = SqlChatStorage(sys.argv[1])\n"
        "message = ConversationMessage('user', 'hi')\n"
        "asyncio.run(storage.save_chat_message('u', 's', 'a', message))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, f"sqlite:///{path}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_a_store_carried_through_a_fork_says_so(storage):
    """Threads do not survive a fork; waiting for them would hang for ever."""
    await storage.save_chat_message(*IDS, user())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            storage.fetch_chat(*IDS).send(None)
        except StorageUnavailableError as error:
            code = 0 if "in each process" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)  # noqa: ASYNC222  (it ends at once)
    assert os.waitstatus_to_exitcode(status) == 0


async def test_listing_pages_through_many_chats(storage, monkeypatch):
    """Keyset pagination: key order, each chat once, chats made meanwhile do no harm."""
    monkeypatch.setattr("agent_memory.storage.sql.storage._PAGE", 7)
    names = ["a", "A", "é", "e\u0301", "z ", "z", "😀", "#", "/", "%", "_", "b"]
    for name in names:
        for session in ("1", "2"):
            await storage.save_chat_message(name, session, "agent", user())
    seen = []
    async for info in storage.list_chats():
        seen.append((info.key.user_id, info.key.session_id))
        if len(seen) == 10:
            await storage.save_chat_message("!first", "new", "agent", user())
    assert seen == sorted((name, session) for name in names for session in ("1", "2"))
    mine = [info.key.session_id async for info in storage.list_chats("z ")]
    assert mine == ["1", "2"]


async def test_the_tail_is_read_by_its_places(storage):
    """The newest few of a long chat are found in the index, not by sorting the chat."""
    await storage.save_chat_messages(*IDS, [user(f"{n}") for n in range(500)])
    statements = storage._parts().statements
    values = {**statements.key_values(ChatKey(*IDS)), "after": 0, "newest": 3, "first": 3}

    def plan(chats):
        plans = []
        for statement in (statements.read_last, statements.read_first, statements.read):
            text = f"EXPLAIN QUERY PLAN {statement.text}"
            rows = chats.connection.exec_driver_sql(text, statement.arrange(values)).fetchall()
            plans.append([row[3] for row in rows])
        return plans

    for steps in await storage._query(plan):
        assert not any("SCAN" in step or "TEMP B-TREE" in step for step in steps), steps
        assert any("chat=? AND position" in step for step in steps), steps


async def test_a_closed_store_is_one_whole_file(tmp_path):
    """Its log (WAL) has been moved into the database, so that copying the one file is enough."""
    for number in range(20):
        path = tmp_path / f"{number}.db"
        async with SqlChatStorage(f"sqlite:///{path}") as storage:
            await storage.save_chat_messages(*IDS, [user(str(n)) for n in range(5)])
            await storage.fetch_chat(*IDS)
        copy = shutil.copy(path, tmp_path / "copy.db")
        async with SqlChatStorage(f"sqlite:///{copy}", create_tables=False) as storage:
            assert len(await storage.fetch_chat(*IDS)) == 5
        assert not path.with_name(f"{number}.db-wal").exists()


async def test_a_failed_insert_leaves_no_transaction_open(storage, monkeypatch):
    """The driver's transaction is rolled back: what comes next stores nothing of it."""
    await storage.save_chat_messages(*IDS, [user(f"{n}", id=f"old-{n}") for n in range(4)])
    real, inserts = SqliteConnection.exec_driver_sql, []

    def failing(self, statement, parameters=(), /):
        if statement.startswith("INSERT"):
            inserts.append(statement)
            if len(inserts) >= 2:  # the chat's row is raised already
                raise sqlite3.OperationalError("disk I/O error")
        return real(self, statement, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteConnection, "exec_driver_sql", failing)
        with pytest.raises(StorageError) as caught:
            await storage.save_chat_message(*IDS, user("lost", id="lost"))
    assert caught.value.stored is False
    assert await storage.trim_chat(*IDS, 1) == 3
    look = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); "
        "print(db.execute('SELECT id, position FROM agent_memory_entries').fetchall(), "
        "db.execute('SELECT last FROM agent_memory_chats').fetchall())"
    )
    command = [sys.executable, "-c", look, str(storage.path)]
    seen = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "[('old-3', 4)] [(4,)]"
    (again,) = await storage.save_chat_message(*IDS, user("lost", id="lost"))
    assert again.position == 5
