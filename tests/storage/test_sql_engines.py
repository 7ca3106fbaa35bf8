"""SqlChatStorage on engines of the caller's, and from many event loops and threads."""

from __future__ import annotations

import asyncio
import functools
import gc
import subprocess
import sys
import threading

import pytest
from sql_tools import IDS, contents, user
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

from agent_memory import InvalidRequestError, SqlChatStorage, StorageUnavailableError
from agent_memory.testing import ChatStorageTests

# Statements are those of stores with engines of their own; connections are got in another way.
CONNECTIONS = pytest.mark.matrix(
    but="differs_by_engine", themes=["batches", "cancellation", "closing", "concurrency"]
)

PROCESSES = pytest.mark.matrix(only=["test_c20_two_processes_save_to_one_chat"])


@CONNECTIONS
@PROCESSES
class TestCallersSqliteEngine(ChatStorageTests):
    saves_in_a_row = 200  # the stores with engines of their own take the large counts
    saves_per_process = 50

    @pytest.fixture
    def make_storage(self, tmp_path):
        return functools.partial(engine_store, f"sqlite:///{tmp_path / 'chats.db'}")


def engine_store(url):
    return SqlChatStorage(create_engine(url, poolclass=NullPool))  # nothing to dispose of


@CONNECTIONS
@PROCESSES
class TestCallersAsyncPostgresEngine(ChatStorageTests):
    serves_any_loop = False
    saves_in_a_row = 200
    saves_per_process = 50

    @pytest.fixture
    def make_storage(self, postgres_url):
        return functools.partial(async_engine_store, postgres_url)


def async_engine_store(url):
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    storage = SqlChatStorage(engine)
    storage_close = storage._close

    async def close():
        await storage_close()
        await engine.dispose()  # the caller's business; here the test's

    storage._close = close
    return storage


@pytest.fixture
async def async_engine(sql_url):
    drivers = {
        "sqlite:": "sqlite+aiosqlite:",
        "postgresql:": "postgresql+asyncpg:",
        "mysql:": "mysql+asyncmy:",
    }
    name = next(name for name in drivers if sql_url.startswith(name))
    engine = create_async_engine(sql_url.replace(name, drivers[name], 1))
    yield engine
    await engine.dispose()


async def test_a_callers_async_engine_is_used_as_it_is_and_left_open(async_engine):
    """The caller may go on with it after the store is closed."""
    async with SqlChatStorage(async_engine) as storage:
        await asyncio.gather(*(storage.save_chat_message(*IDS, user()) for _ in range(30)))
        positions = [message.position for message in await storage.fetch_chat(*IDS)]
        assert positions == list(range(1, 31))
    async with async_engine.connect() as connection:
        counting = text("SELECT count(*) FROM agent_memory_entries")
        assert (await connection.execute(counting)).scalar() == 30


async def test_an_async_engine_serves_the_loop_that_first_used_it(async_engine):
    """Any other gets a clear error instead of a driver's."""
    async with SqlChatStorage(async_engine) as storage:
        await storage.save_chat_message(*IDS, user("here"))

        def elsewhere():
            with pytest.raises(InvalidRequestError, match="give the store a URL"):
                asyncio.run(storage.save_chat_message(*IDS, user("there")))
            with pytest.raises(InvalidRequestError, match="another one"):
                asyncio.run(storage.fetch_chat(*IDS))

        await asyncio.to_thread(elsewhere)
        assert contents(await storage.fetch_chat(*IDS)) == ["here"]


async def test_a_callers_engine_is_left_open(tmp_path):
    """A blocking engine likewise; its pool is the caller's."""
    engine = create_engine(f"sqlite:///{tmp_path / 'chats.db'}")
    async with SqlChatStorage(engine) as storage:
        await storage.save_chat_message(*IDS, user())
        assert storage.scope == "host"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM agent_memory_entries")).scalar() == 1
    engine.dispose()


async def test_a_callers_engine_in_memory_is_one_connection():
    """Writes and reads share the thread, since another one may see another database."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    async with SqlChatStorage(engine) as storage:
        await storage.save_chat_message(*IDS, user("there"))
        assert contents(await storage.fetch_chat(*IDS)) == ["there"]
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM agent_memory_entries")).scalar() == 1
    engine.dispose()


def test_c63_twenty_short_lived_loops_in_threads(sql_url):
    """An orchestrator that does `asyncio.run` in worker threads; nothing stays behind."""
    storage = SqlChatStorage(sql_url)
    failures = []

    def work(number):
        async def talk():
            await storage.save_chat_message(*IDS, user(f"{number}"))
            return len(await storage.fetch_chat(*IDS))

        try:
            for _ in range(3):
                assert asyncio.run(talk()) >= 1
        except BaseException as error:  # noqa: BLE001  (told by the assertion below)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []

    async def look():
        messages = await storage.fetch_chat(*IDS)
        await storage.aclose()
        return [message.position for message in messages]

    assert asyncio.run(look()) == list(range(1, 61))


@pytest.mark.leaves_things  # asyncio.run itself cancels the tasks
def test_c22_a_loop_that_ends_waits_for_its_saves(sql_url):
    """`asyncio.run` cancels what still runs; a save is in the log or never will be."""
    storage = SqlChatStorage(sql_url)
    messages = [user(f"{number}") for number in range(20)]
    outcomes = {}

    async def leave():
        await storage.save_chat_message(*IDS, user("first"))

        async def save(message):
            try:
                await storage.save_chat_message(*IDS, message)
                outcomes[message.id] = "saved"
            except asyncio.CancelledError:
                outcomes[message.id] = "cancelled"
                raise

        for message in messages:
            task = asyncio.ensure_future(save(message))
            task.add_done_callback(tasks.discard)
            tasks.add(task)
        for _ in range(10):
            await asyncio.sleep(0)

    tasks = set()
    asyncio.run(leave())
    assert len(outcomes) == 20

    async def look():
        before = await storage.fetch_chat(*IDS)
        # What was in flight has ended: nothing comes in late.
        again = await storage.save_chat_messages(*IDS, messages)
        after = await storage.fetch_chat(*IDS)
        await storage.aclose()
        return before, again, after

    before, again, after = asyncio.run(look())
    assert again == messages
    assert len(after) == 21
    stored = {message.id for message in before}
    assert all(id_ in stored for id_, outcome in outcomes.items() if outcome == "saved")


def test_a_forgotten_store_on_a_server_warns_and_ends(postgres_url):
    """Its loop's thread ends and its connections are closed (else this test fails)."""

    async def forget():
        await SqlChatStorage(postgres_url).save_chat_message(*IDS, user())

    def forget_and_collect():
        asyncio.run(forget())
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed SqlChatStorage"):
        forget_and_collect()


async def test_a_server_that_is_not_there_is_told():
    """Refused at once, with the driver's words, and nothing was stored."""
    for url in ("postgresql://u@127.0.0.1:1/db", "mysql://u@127.0.0.1:1/db"):
        storage = SqlChatStorage(url)
        with pytest.raises(StorageUnavailableError, match="not available") as caught:
            await storage.save_chat_message(*IDS, user())
        assert caught.value.stored is False
        await storage.aclose()


async def test_a_database_that_is_not_there_is_told(postgres_url, mariadb_url):
    """So is a database that nobody made."""
    for url in (postgres_url, mariadb_url):
        storage = SqlChatStorage(f"{url}x")
        with pytest.raises(StorageUnavailableError, match=r"does not exist|Unknown database"):
            await storage.fetch_chat(*IDS)
        await storage.aclose()


@pytest.mark.parametrize("work", ["save", "fetch"])
def test_a_loop_that_ends_before_its_work_begins_ends(tmp_path, work):
    """``asyncio.run`` cancels a job that a caller's engine has not begun: nobody waits for it."""
    code = f"""
import asyncio
from sqlalchemy.ext.asyncio import create_async_engine
from agent_memory import ConversationMessage, SqlChatStorage

async def main():
    engine = create_async_engine("sqlite+aiosqlite:///{tmp_path}/chats.db")
    storage = SqlChatStorage(engine)
    ids = ("user", "session", "agent")
    await storage.save_chat_message(*ids, ConversationMessage("user", "one"))
    if {work!r} == "save":
        left = storage.save_chat_message(*ids, ConversationMessage("user", "two"))
    else:
        left = storage.fetch_chat(*ids)
    main.left = asyncio.create_task(left)

asyncio.run(main())
print(main.left.cancelled())
import os
os._exit(0)  # aiosqlite's threads are the caller's business
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
