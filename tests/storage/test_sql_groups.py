"""Appends that wait at the same moment share a transaction, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading

import pytest
from sql_tools import IDS, ask, change, contents, executed, user
from sqlalchemy import event
from sqlalchemy.dialects import mysql, postgresql

from agent_memory import (
    ChatKey,
    Note,
    SqlChatStorage,
    StorageConflictError,
    StorageError,
    StorageUnavailableError,
)
from agent_memory.errors import MessageTooLargeError
from agent_memory.storage._engine.append_plan import PendingSave
from agent_memory.storage._engine.commit_queue import Bounds
from agent_memory.storage.sql import appending
from agent_memory.storage.sql.schema import make_tables
from agent_memory.storage.sql.sqlite import SqliteConnection
from agent_memory.storage.sql.statements import Statements


def chat(number):
    return "user", f"session {number}", "agent"


def save(storage, number, *messages):
    return storage.save_chat_messages(*chat(number), messages)


@pytest.fixture
async def storage(sql_url):
    async with SqlChatStorage(sql_url) as storage:
        yield storage


@pytest.fixture
async def sqlite(tmp_path):
    async with SqlChatStorage(f"sqlite:///{tmp_path / 'chats.db'}") as storage:
        yield storage


class Plug:
    """Keeps the writer's thread busy until it is pulled, so that appends wait together."""

    def __init__(self, storage):
        self._pulled = threading.Event()
        executor = storage._parts().executor
        self._holding = asyncio.ensure_future(executor.run(lambda _session: self._pulled.wait(30)))

    async def __aenter__(self):
        await asyncio.sleep(0)  # it is in the queue now
        return self

    async def __aexit__(self, *_error):
        self._pulled.set()
        await self._holding


async def gathered_behind_a_plug(storage, *saves):
    """Run saves so that all of them wait before the first is stored."""
    async with Plug(storage):
        tasks = [asyncio.ensure_future(one) for one in saves]
        for _ in range(20):
            await asyncio.sleep(0)  # each goes as far as it can: into the queue
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_waiting_appends_share_one_commit(sqlite):
    """One transaction for all of them, each told its own result."""
    with executed(sqlite) as texts:
        stored = await gathered_behind_a_plug(
            sqlite, *(save(sqlite, number, user(f"in {number}")) for number in range(150))
        )
    assert [contents(messages) for messages in stored] == [[f"in {n}"] for n in range(150)]
    assert {message.position for (message,) in stored} == {1}
    assert texts.count("COMMIT") == 1
    for number in (0, 63, 64, 149):
        assert contents(await sqlite.fetch_chat(*chat(number))) == [f"in {number}"]


async def test_a_group_keeps_the_order_within_each_chat(storage):
    """Batches of one chat are placed one behind the other, each without a gap."""
    saves = [save(storage, n % 3, *(user(f"{n} {i}") for i in range(4))) for n in range(60)]
    await asyncio.gather(*saves)
    for number in range(3):
        messages = await storage.fetch_chat(*chat(number))
        assert [message.position for message in messages] == list(range(1, 81))
        batches = [contents(messages[i : i + 4]) for i in range(0, 80, 4)]
        assert all(batch == [f"{batch[0].split()[0]} {i}" for i in range(4)] for batch in batches)


async def test_a_known_id_in_a_group_is_its_callers_alone(storage):
    """The group is done again one by one: the repeat finds its place, the rest are stored."""
    (first,) = await save(storage, 1, user("first", id="known"))
    stored = await asyncio.gather(
        save(storage, 0, user("other")),
        save(storage, 1, user("first", id="known"), user("second")),
        save(storage, 1, user("third")),
        save(storage, 2, user("another")),
    )
    assert stored[1][0] == first
    assert stored[1][0].position == 1
    assert sorted(contents(await storage.fetch_chat(*chat(1)))) == ["first", "second", "third"]
    assert [m.position for m in await storage.fetch_chat(*chat(1))] == [1, 2, 3]


async def test_c16_a_conflict_in_a_group_is_its_callers_alone(storage):
    """The same id with other content fails for the one who gave it, and stores nothing."""
    await save(storage, 1, user("first", id="known"))
    told = await asyncio.gather(
        save(storage, 0, user("other")),
        save(storage, 1, user("not stored"), user("changed", id="known")),
        save(storage, 1, user("second")),
        return_exceptions=True,
    )
    assert isinstance(told[1], StorageConflictError)
    assert told[1].stored is False
    assert contents(told[0] + told[2]) == ["other", "second"]
    assert contents(await storage.fetch_chat(*chat(1))) == ["first", "second"]


async def test_two_new_messages_under_one_id_in_a_group(storage):
    """Whoever comes first is stored; the other conflicts or is the same message."""
    told = await asyncio.gather(
        save(storage, 1, user("one", id="x")),
        save(storage, 1, user("two", id="x")),
        save(storage, 1, user("one", id="x")),
        return_exceptions=True,
    )
    (kept,) = contents(await storage.fetch_chat(*chat(1)))
    for result, content in zip(told, ["one", "two", "one"], strict=True):
        if content == kept:
            assert contents(result) == [kept]
        else:
            assert isinstance(result, StorageConflictError)


@pytest.mark.parametrize("error", [MemoryError(), KeyError("x")])
async def test_c106_an_error_among_those_done_one_by_one_is_its_callers_alone(
    storage, monkeypatch, error
):
    """Whatever it is: nobody waits for ever, and who was told of no error is stored."""
    await save(storage, 1, user("first", id="known"))
    parts, real, done = storage._parts(), appending.append_with_lookup, []

    def third_fails(*arguments):
        done.append(arguments)
        if len(done) == 3:
            raise error
        return real(*arguments)

    monkeypatch.setattr(appending, "append_with_lookup", third_fails)
    messages = [user("first", id="known"), *map(user, ["one", "two", "three"])]
    told = await committed(parts, [pending(parts, 1, message) for message in messages])
    assert told[2] is error
    del told[2]
    assert [entry.content for log in told for entry in log.entries] == ["first", "one", "three"]
    assert contents(await storage.fetch_chat(*chat(1))) == ["first", "one", "three"]


@pytest.mark.parametrize("error", [MemoryError(), KeyError("x")])
async def test_an_unexpected_error_in_a_group_is_told_to_all_of_it(storage, monkeypatch, error):
    """Nobody waits for ever, nothing is stored, and the next save works."""

    def fails(*_arguments):
        raise error

    await save(storage, 1, user("first"))
    with monkeypatch.context() as broken:
        broken.setattr(appending.GroupAppender, "_store", fails)
        told = await asyncio.gather(
            *(save(storage, number, user("lost")) for number in range(5)), return_exceptions=True
        )
    assert [type(outcome) for outcome in told] == [type(error)] * 5
    await save(storage, 1, user("second"))
    assert contents(await storage.fetch_chat(*chat(1))) == ["first", "second"]


async def test_a_group_that_a_lock_keeps_out_is_not_tried_one_by_one(tmp_path, monkeypatch):
    """Each would wait for the lock as long as the group has."""
    path = tmp_path / "chats.db"
    async with SqlChatStorage(f"sqlite:///{path}", timeout=0.1) as storage:
        await save(storage, 1, user("first"))
        tried = []
        one_by_one = appending.GroupAppender._store_alone
        monkeypatch.setattr(
            appending.GroupAppender,
            "_store_alone",
            lambda *arguments: (tried.append(arguments), one_by_one(*arguments))[1],
        )
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            told = await gathered_behind_a_plug(
                storage, *(save(storage, number, user("lost")) for number in range(5))
            )
        assert [type(outcome) for outcome in told] == [StorageUnavailableError] * 5
        assert tried == []


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
async def test_chats_are_locked_in_key_order(server, request):
    """Whatever the order of the group: two groups never wait for each other."""
    given = []
    async with SqlChatStorage(request.getfixturevalue(f"{server}_url")) as storage:
        parts = storage._parts()
        await save(storage, 9, user("warm"))
        group = [pending(parts, number, user("x")) for number in (4, 1, 3, 0, 2)]
        event.listen(
            parts.executor.engine,
            "before_cursor_execute",
            lambda *arguments: given.extend(flat(arguments[3])),
        )
        stored = await committed(parts, group)
        assert [len(log.entries) for log in stored] == [1] * 5
    sessions = [text for text in given if text.startswith("session ")]
    assert sessions[:5] == [f"session {number}" for number in range(5)]


@pytest.mark.parametrize("dialect", [mysql.dialect(), postgresql.dialect()])
def test_a_trim_and_a_record_lock_their_chat(dialect):
    """On servers, where transactions run beside each other; a race would show it rarely."""
    lock = Statements(make_tables("x_", None), dialect).lock
    assert lock.text.endswith("FOR UPDATE")


def flat(parameters):
    """The texts among a statement's parameters, those in arrays included."""
    values = parameters.values() if isinstance(parameters, dict) else parameters
    for value in values:
        if isinstance(value, list | tuple | dict):
            yield from flat(value)
        elif isinstance(value, str | bytes):
            yield value if isinstance(value, str) else value.decode()


def pending(parts, number, *messages):
    """What waits to be committed."""
    key = ChatKey(*chat(number))
    return PendingSave(key, messages, parts.codec.encode(key, messages))


async def committed(parts, group):
    """Have the store's engine commit a group, and return the outcomes."""
    executor = parts.executor
    return await executor.run(lambda session: executor.appender.commit(session, group))


REFUSALS = {
    "sqlite": [
        (
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_memory_entries WHEN NEW.id = 'refused' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    ],
    "postgresql": [
        (
            "CREATE FUNCTION refuse() RETURNS trigger AS 'BEGIN RAISE EXCEPTION ''refused''; END' "
            "LANGUAGE plpgsql"
        ),
        (
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_memory_entries FOR EACH ROW "
            "WHEN (NEW.id = 'refused') EXECUTE FUNCTION refuse()"
        ),
    ],
    "mysql": [
        (
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_memory_entries FOR EACH ROW "
            "IF NEW.id = 'refused' THEN SIGNAL SQLSTATE '45000' "
            "SET MESSAGE_TEXT = 'refused'; END IF"
        )
    ],
}


async def test_c17_an_insert_that_fails_in_the_database_stores_nothing(storage):
    """The fourth of five is refused by the database: the batch is gone, the next save fine."""
    await change(storage, *REFUSALS[storage._parts().statements.family])
    batch = [user(f"{n}") for n in range(3)] + [user("bad", id="refused"), user("last")]
    told = await asyncio.gather(
        save(storage, 1, *batch),
        save(storage, 1, user("beside")),
        save(storage, 2, user("elsewhere")),
        return_exceptions=True,
    )
    assert isinstance(told[0], StorageError)
    assert told[0].stored is False
    assert "refused" in str(told[0])
    assert contents(told[1] + told[2]) == ["beside", "elsewhere"]
    (stored,) = await save(storage, 1, user("next"))
    assert stored.position == 2
    assert contents(await storage.fetch_chat(*chat(1))) == ["beside", "next"]


async def test_a_new_chat_that_is_refused_leaves_no_trace(storage):
    """Not even its row."""
    await change(storage, *REFUSALS[storage._parts().statements.family])
    with pytest.raises(StorageError):
        await save(storage, 1, user("bad", id="refused"))
    assert await ask(storage, "SELECT * FROM agent_memory_chats") == []


async def test_large_groups_are_split(sqlite):
    """A transaction does not grow without bound."""
    sqlite._parts().executor._write_thread._bounds = Bounds(entries=10)
    with executed(sqlite) as texts:
        await gathered_behind_a_plug(
            sqlite, *(save(sqlite, n, *(user() for _ in range(4))) for n in range(10))
        )
        assert texts.count("COMMIT") == 5  # two batches of four messages in each


async def test_a_lone_save_does_not_wait(sqlite):
    """An idle store adds no delay: a save is one transaction, begun at once."""
    with executed(sqlite) as texts:
        for number in range(5):
            await save(sqlite, 0, user(f"{number}"))
        assert texts.count("COMMIT") == 5


async def test_there_is_no_look_up_before_a_fresh_save(storage):
    """Nor a second one for the chat: the statements of a save of new messages are counted."""
    await save(storage, 0, user("warm"))
    with executed(storage) as texts:
        await save(storage, 0, user("one"), user("two"))
    texts = [text.split()[0] for text in texts if text != "COMMIT"]
    at_once = storage._parts().statements.family == "postgresql"
    assert texts == (["WITH"] if at_once else ["INSERT", "INSERT"])


async def test_engines_that_return_nothing_from_inserts(mariadb_url, monkeypatch):
    """MySQL has no RETURNING: chats are read after they are raised, in the same transaction."""
    made = Statements.__init__

    def without_returning(self, tables, dialect):
        made(self, tables, dialect)
        self._returns_rows = False

    monkeypatch.setattr(Statements, "__init__", without_returning)
    async with SqlChatStorage(mariadb_url) as storage:
        await asyncio.gather(*(save(storage, n % 7, user(f"{n}")) for n in range(100)))
        stored = await save(storage, 0, user("again", id="x"), user("more"))
        assert await save(storage, 0, user("again", id="x")) == stored[:1]
        for number in range(7):
            messages = await storage.fetch_chat(*chat(number))
            assert [m.position for m in messages] == list(range(1, len(messages) + 1))


async def test_a_long_batch_that_overlaps_is_looked_up_in_pieces(storage):
    """More ids than one statement may name; what is known keeps its place."""
    messages = [user(f"{n}", id=f"m{n}") for n in range(1_300)]
    await save(storage, 0, *messages[:700])
    stored = await save(storage, 0, *messages)
    assert [message.position for message in stored] == list(range(1, 1_301))
    assert await storage.fetch_chat(*chat(0)) == messages


async def test_a_known_batch_that_grows_takes_new_positions(storage):
    """What follows it comes after what it added."""
    await save(storage, 0, user("one", id="m1"))
    grown = await save(storage, 0, user("one", id="m1"), user("two", id="m2"))
    (after,) = await save(storage, 0, user("three"))
    assert [message.position for message in [*grown, after]] == [1, 2, 3]


async def test_positions_of_a_repeated_batch_are_those_of_old(storage):
    """Notes are entries too, with ids of their own."""
    note = await storage.save_note(*IDS, Note("run", {"cost": 1}, id="n"))
    assert note.position == 1
    again = await storage.save_note(*IDS, Note("run", {"cost": 1}, id="n"))
    assert again.position == 1
    with pytest.raises(StorageConflictError):
        await storage.save_chat_message(*IDS, user("not a note", id="n"))


async def test_c08_what_exceeds_the_packet_is_refused_before_it_is_sent(mariadb_url):
    """MariaDB would drop the connection; the limit is read at open and told."""
    async with SqlChatStorage(mariadb_url) as storage:
        ((packet,),) = await ask(storage, "SELECT @@max_allowed_packet")
        with executed(storage) as texts:
            with pytest.raises(MessageTooLargeError, match=str(packet - 16_384)) as caught:
                await save(storage, 0, user("small"), user("x" * packet))
            # Escapes count: a backslash is sent as two.
            with pytest.raises(MessageTooLargeError):
                await save(storage, 0, user('"' * (packet // 4)))
            assert texts == []
        assert caught.value.stored is False
        assert await storage.fetch_chat(*chat(0)) == []
        large = user('"' * (packet // 5))  # in JSON \", sent as \\\": four bytes each
        assert await save(storage, 0, large) == [large]
        assert await storage.fetch_chat(*chat(0)) == [large]


async def test_a_batch_larger_than_a_packet_is_sent_in_pieces(mariadb_url):
    """One transaction, several statements."""
    async with SqlChatStorage(mariadb_url) as storage:
        ((packet,),) = await ask(storage, "SELECT @@max_allowed_packet")
        size = 300_000
        batch = [user(f"{n} " + "x" * size) for n in range(packet // size + 5)]
        stored = await save(storage, 0, *batch)
        assert [m.position for m in stored] == list(range(1, len(batch) + 1))
        assert await storage.fetch_chat(*chat(0)) == batch


async def test_c08_sqlites_limit_is_told(sqlite):
    """A row longer than SQLite's limit is refused before anything is written."""
    object.__setattr__(sqlite._parts().codec, "max_bytes", 1_000)
    with pytest.raises(MessageTooLargeError, match="at most 1000"):
        await save(sqlite, 0, user("x" * 1_000))
    assert await save(sqlite, 0, user("é" * 300))


async def test_a_small_read_is_made_beside_the_saves(sqlite, monkeypatch):
    """In the writer's thread if that is idle, up to a bound of bytes; else in the reader's."""
    threads, executor = [], sqlite._parts().executor
    real = SqliteConnection.exec_driver_sql

    def noting(self, statement, parameters=(), /):
        if statement.startswith("SELECT"):
            threads.append(threading.current_thread().name)
        return real(self, statement, parameters)

    async def fetch(count):
        # It answers a save before it has looked for the next.
        while not executor._write_thread.is_idle:  # noqa: ASYNC110  (a thread, which sets no event)
            await asyncio.sleep(0)
        threads.clear()
        return [message.id for message in await sqlite.fetch_chat(*chat(0), count)]

    monkeypatch.setattr(SqliteConnection, "exec_driver_sql", noting)
    await save(sqlite, 0, *(user("x" * 1_000, id=f"m{n}") for n in range(100)))
    assert await fetch(64) == [f"m{n}" for n in range(36, 100)]
    assert threads == ["agent-memory-sql-writer"]

    assert len(await fetch(65)) == 65
    assert threads == ["agent-memory-sql-reader"]

    await save(sqlite, 0, user("y" * 200_000, id="large"))
    assert await fetch(2) == ["m99", "large"]
    assert threads == ["agent-memory-sql-writer", "agent-memory-sql-reader"]


async def test_a_read_does_not_wait_for_a_busy_writer(sqlite):
    """While saves wait, everything is read on the other connection."""
    await save(sqlite, 0, user("here"))
    async with Plug(sqlite):
        assert contents(await sqlite.fetch_chat(*chat(0), 20)) == ["here"]
