"""SQLite connections after errors, and small reads, which run in the writer's thread."""

from __future__ import annotations

import sqlite3

import pytest
from sql_tools import IDS, contents, user
from sqlalchemy import create_engine

from agent_memory import SqlChatStorage, StorageUnavailableError
from agent_memory.storage.sql.sqlite import SqliteConnection
from agent_memory.storage.sql.statements import core


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chats.db"


@pytest.fixture
async def storage(path):
    async with SqlChatStorage(f"sqlite:///{path}") as storage:
        await storage.save_chat_message(*IDS, user("before"))
        await storage.fetch_chat(*IDS)
        yield storage


async def small_read(storage):
    """What the writer's thread reads, if it is idle."""
    return contents(await storage.fetch_chat(*IDS, 5))


@pytest.mark.parametrize("how", ["write", "read"])
async def test_a_connection_that_was_given_up_is_opened_anew(storage, how):
    """SQLAlchemy closes the driver's connection when it finds that it is lost."""

    def work(connection):
        connection.exec_driver_sql("SELECT 1")
        core(connection).invalidate()
        raise TimeoutError

    with pytest.raises(StorageUnavailableError):
        await getattr(storage._parts().executor, how)(work)
    assert await small_read(storage) == ["before"]
    assert contents(await storage.fetch_chat(*IDS)) == ["before"]
    await storage.save_chat_message(*IDS, user("after"))
    assert await small_read(storage) == ["before", "after"]
    assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]


async def test_what_could_not_be_rolled_back_is_not_read(storage, monkeypatch):
    """The connection with the open transaction is closed, which undoes it."""

    def fail(self):
        raise sqlite3.OperationalError("disk I/O error")

    def work(chats):
        chats.connection.exec_driver_sql("DELETE FROM agent_memory_entries")
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(SqliteConnection, "rollback", fail)
        with pytest.raises(ZeroDivisionError):
            await storage._write(work)
    assert await small_read(storage) == ["before"]
    await storage.save_chat_message(*IDS, user("after"))
    assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]


async def test_a_transaction_that_could_not_begin_leaves_nothing(path):
    """While another process writes; afterwards the same connection works."""
    async with SqlChatStorage(f"sqlite:///{path}", timeout=0.1) as storage:
        await storage.save_chat_message(*IDS, user("before"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailableError, match="locked"):
            await storage.save_chat_message(*IDS, user("refused"))
        assert await small_read(storage) == ["before"]
        other.execute("COMMIT")
        other.close()
        await storage.save_chat_message(*IDS, user("after"))
        assert await small_read(storage) == ["before", "after"]


async def replace(path, *messages):
    """Put another database in the place of one that is open."""
    new = path.with_name("new.db")
    async with SqlChatStorage(f"sqlite:///{new}") as other:
        await other.save_chat_messages(*IDS, messages)
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    new.rename(path)


async def test_c100_a_small_read_follows_a_replaced_file(storage, path):
    """And so does what is saved after it, and read by the other connection."""
    assert await small_read(storage) == ["before"]
    await replace(path, user("new"))
    assert await small_read(storage) == ["new"]
    await storage.save_chat_message(*IDS, user("after"))
    assert contents(await storage.fetch_chat(*IDS)) == ["new", "after"]
    async with SqlChatStorage(f"sqlite:///{path}") as other:
        assert contents(await other.fetch_chat(*IDS)) == ["new", "after"]


async def test_c100_a_small_read_of_a_deleted_file_is_refused(storage, path):
    """As any other read is."""
    for part in ("", "-wal", "-shm"):
        path.with_name(path.name + part).unlink()
    with pytest.raises(StorageUnavailableError, match="is gone"):
        await small_read(storage)
    assert not path.exists()


async def test_c109_text_is_erased_after_the_connection_was_opened_anew(path):
    """An error of the medium between a delete and its erasure does not make it forgotten."""
    async with SqlChatStorage(f"sqlite:///{path}") as storage:
        await storage.save_chat_messages(*IDS, [user(f"SECRET {n}") for n in range(50)])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM agent_memory_entries").fetchone()
        await storage.delete_chat(*IDS)
        executor = storage._parts().executor
        await executor.run(lambda session: session._drop_connection())
        assert executor._write_transactor.is_erasing
        other.execute("COMMIT")
        other.close()
        await storage._erase_deleted()
        files = [path, path.with_name("chats.db-wal")]
        assert [part.read_bytes().count(b"SECRET") for part in files] == [0, 0]


async def test_a_connection_that_timed_out_does_not_go_back_to_the_pool(tmp_path):
    """Whoever got it next would only wait once more."""
    engine, used = create_engine(f"sqlite:///{tmp_path / 'own.db'}"), []

    def note(connection):
        used.append(connection.connection.driver_connection)

    def time_out(connection):
        note(connection)
        raise TimeoutError

    async with SqlChatStorage(engine) as storage:
        executor = storage._parts().executor
        with pytest.raises(StorageUnavailableError):
            await executor.read(time_out)
        await executor.read(note)
    engine.dispose()
    assert used[0] is not used[1]
