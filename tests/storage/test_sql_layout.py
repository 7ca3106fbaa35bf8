"""The tables of SqlChatStorage: making, checking and migrating them."""

from __future__ import annotations

import asyncio

import pytest
import sql_process
from sql_tools import IDS, ask, change, contents, user

import matrix
from agent_memory import SqlChatStorage, StorageError
from agent_memory.storage.sql import schema as layout


@pytest.mark.parametrize(
    "sql_url",
    matrix.params(["sqlite", "postgres", "mariadb"], always=["sqlite", "postgres"]),
    indirect=True,
)
async def test_c21_two_replicas_make_the_tables_at_the_same_moment(sql_url):
    """Both work, and what both stored is there."""
    processes = [sql_process.start(sql_url, f"p{i}", 3) for i in range(2)]
    for process in processes:
        sql_process.go(process)
    assert [sql_process.end(process)[1] for process in processes] == [0] * 2
    async with SqlChatStorage(sql_url, create_tables=False) as storage:
        assert len(await storage.fetch_chat("user", "session 0", "agent")) == 6


async def test_c21_many_stores_of_one_process_make_the_tables(sql_url):
    """The same within a process."""
    storages = [SqlChatStorage(sql_url) for _ in range(5)]
    await asyncio.gather(*(storage.save_chat_message(*IDS, user()) for storage in storages))
    assert len(await storages[0].fetch_chat(*IDS)) == 5
    for storage in storages:
        await storage.aclose()


async def test_missing_tables_are_told_when_they_are_not_to_be_made(sql_url):
    """Operators who make tables themselves learn which are missing."""
    storage = SqlChatStorage(sql_url, create_tables=False, table_prefix="ours_")
    with pytest.raises(StorageError, match="'ours_layout' does not exist and create_tables is"):
        await storage.fetch_chat(*IDS)
    async with SqlChatStorage(sql_url, table_prefix="ours_"):
        pass
    assert await storage.fetch_chat(*IDS) == []  # it may be tried again
    await storage.aclose()


async def test_prefixes_are_stores_of_their_own(sql_url):
    """Two applications share a database."""
    async with (
        SqlChatStorage(sql_url, table_prefix="one_") as one,
        SqlChatStorage(sql_url, table_prefix="Two$") as two,
    ):
        await one.save_chat_message(*IDS, user("one"))
        await two.save_chat_message(*IDS, user("two"))
        assert contents(await one.fetch_chat(*IDS)) == ["one"]
        assert contents(await two.fetch_chat(*IDS)) == ["two"]


async def test_a_schema_holds_the_tables(postgres_url):
    """Tables live in the schema given, which must exist."""
    async with SqlChatStorage(postgres_url) as storage:
        await change(storage, "CREATE SCHEMA memory")
    async with SqlChatStorage(postgres_url, schema="memory") as storage:
        await storage.save_chat_message(*IDS, user("there"))
        (row,) = await ask(storage, "SELECT count(*) FROM memory.agent_memory_entries")
        assert row[0] == 1
    missing = SqlChatStorage(postgres_url, schema="nowhere")
    with pytest.raises(StorageError, match="nowhere"):
        await missing.fetch_chat(*IDS)
    await missing.aclose()


async def test_a_newer_layout_is_refused(sql_url):
    """Rolling back a release does not damage what a newer one wrote."""
    async with SqlChatStorage(sql_url) as storage:
        await change(storage, "UPDATE agent_memory_layout SET version = 2")
    late = SqlChatStorage(sql_url)
    with pytest.raises(StorageError, match=r"layout 2.*up to 1\. Upgrade"):
        await late.save_chat_message(*IDS, user())
    with pytest.raises(StorageError, match="layout 2"):
        await late.migrate()
    await late.aclose()


async def test_an_older_layout_is_migrated_when_asked(sql_url, monkeypatch):
    """Never in silence: a store refuses the older layout until `migrate` has been called."""
    async with SqlChatStorage(sql_url) as storage:
        await storage.save_chat_message(*IDS, user("old"))

    def to_two(connection, tables):
        connection.exec_driver_sql(f"ALTER TABLE {tables.records.fullname} ADD extra INTEGER")

    monkeypatch.setattr(layout, "LAYOUT_VERSION", 2)
    monkeypatch.setattr(layout, "MIGRATIONS", {1: to_two})
    storage = SqlChatStorage(sql_url)
    with pytest.raises(StorageError, match=r"older layout 1.*await storage\.migrate\(\)"):
        await storage.fetch_chat(*IDS)
    assert await storage.migrate() == 2
    assert await storage.migrate() == 2  # twice is fine
    assert contents(await storage.fetch_chat(*IDS)) == ["old"]
    assert await ask(storage, "SELECT extra FROM agent_memory_records") == []
    await storage.aclose()


async def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    """On engines whose DDL is transactional, the tables stay as they were."""
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    async with SqlChatStorage(url):
        pass

    def half(connection, _tables):
        connection.exec_driver_sql("ALTER TABLE agent_memory_records ADD extra INTEGER")
        connection.exec_driver_sql("no SQL")

    monkeypatch.setattr(layout, "LAYOUT_VERSION", 2)
    monkeypatch.setattr(layout, "MIGRATIONS", {1: half})
    storage = SqlChatStorage(url)
    with pytest.raises(StorageError, match="syntax error"):
        await storage.migrate()
    monkeypatch.setattr(layout, "LAYOUT_VERSION", 1)
    with pytest.raises(StorageError, match="no such column"):
        await ask(storage, "SELECT extra FROM agent_memory_records")
    assert await storage.fetch_chat(*IDS) == []
    await storage.aclose()


async def test_migrate_without_a_way_says_so(tmp_path, monkeypatch):
    """A layout that no release since can read is told of."""
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    async with SqlChatStorage(url):
        pass
    monkeypatch.setattr(layout, "LAYOUT_VERSION", 2)
    storage = SqlChatStorage(url)
    with pytest.raises(StorageError, match="no migration from layout 1"):
        await storage.migrate()
    await storage.aclose()


async def test_migrate_makes_what_is_missing(tmp_path):
    """On an empty database it makes the newest layout."""
    storage = SqlChatStorage(f"sqlite:///{tmp_path / 'chats.db'}", create_tables=False)
    assert await storage.migrate() == 1
    assert await storage.fetch_chat(*IDS) == []
    await storage.aclose()


async def test_c21_tables_whose_maker_was_killed_are_finished(sql_url):
    """Where tables are made outside of transactions, the version may be missing: it is added."""
    async with SqlChatStorage(sql_url) as storage:
        await storage.save_chat_message(*IDS, user())
        await change(storage, "DELETE FROM agent_memory_layout")
    async with SqlChatStorage(sql_url) as other:
        assert len(await other.fetch_chat(*IDS)) == 1
        assert await other.migrate() == layout.LAYOUT_VERSION


async def test_tables_that_vanish_are_told(sql_url):
    """Someone dropped them while the store was open."""
    async with SqlChatStorage(sql_url) as storage:
        await storage.save_chat_message(*IDS, user())
        await change(storage, "DROP TABLE agent_memory_chats", "DROP TABLE agent_memory_entries")
        with pytest.raises(StorageError, match="tables are gone"):
            await storage.fetch_chat(*IDS)
        with pytest.raises(StorageError, match="tables are gone"):
            await storage.save_chat_message(*IDS, user())


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_server):
    """An encoding other than UTF-8 would fail later, at the first emoji."""
    from engines import in_thread, postgres_execute, with_path  # noqa: PLC0415

    name = "ascii_only"
    made = f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0"
    in_thread(postgres_execute(postgres_server, made))
    storage = SqlChatStorage(with_path(postgres_server, f"/{name}"))
    with pytest.raises(StorageError, match="encoding SQL_ASCII"):
        await storage.fetch_chat(*IDS)
    await storage.aclose()
    in_thread(postgres_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))
