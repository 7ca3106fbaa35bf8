"""Servers that go away, deadlock, or do not answer."""

from __future__ import annotations

import asyncio

import pytest
from sql_proxy import Proxy
from sql_tools import IDS, ask, contents, user

from agent_memory import ChatKey, SqlChatStorage, StorageUnavailableError
from agent_memory.records import Covered, SummaryRecord
from engines import running_postgres
from servers import EngineMissingError, postgres_binaries, private_directory, unprivileged_user

COMMIT = {"postgresql": b"COMMIT;", "mysql": b"\x03COMMIT"}  # not the READ COMMITTED of BEGIN
APPENDED = {**COMMIT, "postgresql": b"cut here"}  # a save there is one statement, with our ids


@pytest.fixture(params=["postgres", "mariadb"])
def server_url(request):
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def proxy(server_url):
    async with Proxy(server_url) as proxy:
        yield proxy


@pytest.fixture
async def storage(proxy):
    async with SqlChatStorage(proxy.url) as storage:
        await storage.save_chat_message(*IDS, user("first"))
        yield storage


async def test_connections_lost_between_calls_are_replaced(storage, proxy):
    """A server restarted, or a firewall dropped idle connections: nobody notices."""
    for number in range(3):
        proxy.cut()
        await storage.save_chat_message(*IDS, user(f"{number}"))
        proxy.cut()
        assert len(await storage.fetch_chat(*IDS)) == number + 2
    assert contents(await storage.fetch_chat(*IDS)) == ["first", "0", "1", "2"]
    assert [message.position for message in await storage.fetch_chat(*IDS)] == [1, 2, 3, 4]


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
async def test_a_connection_lost_in_the_middle_stores_once(storage, proxy, cut):
    """Cut before or after the insert has reached the server: done again, stored once."""
    setattr(proxy, cut, b"cut here")
    batch = [user("one"), user("two", id="cut here")]
    stored = await storage.save_chat_messages(*IDS, batch)
    assert getattr(proxy, cut) is None  # it did happen
    assert stored == batch
    assert contents(await storage.fetch_chat(*IDS)) == ["first", "one", "two"]
    assert [message.position for message in await storage.fetch_chat(*IDS)] == [1, 2, 3]


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
async def test_a_connection_lost_at_the_commit_stores_once(storage, proxy, cut):
    """Whether the commit reached the server cannot be known; ids make it safe to try again."""
    setattr(proxy, cut, APPENDED[storage._parts().statements.family])
    batch = [user("one"), user("two", id="cut here")]
    stored = await storage.save_chat_messages(*IDS, batch)
    assert getattr(proxy, cut) is None
    assert stored == batch
    assert contents(await storage.fetch_chat(*IDS)) == ["first", "one", "two"]
    assert [message.position for message in await storage.fetch_chat(*IDS)] == [1, 2, 3]


async def test_a_commit_that_is_lost_for_good_is_unknown(storage, proxy, monkeypatch):
    """The commit was applied, the server stays away: `stored` is None, and the retry tells."""
    monkeypatch.setattr("agent_memory.storage.sql.transactor._DELAYS", ())
    proxy.cut_after = APPENDED[storage._parts().statements.family]
    message = user("lost", id="cut here")
    with pytest.raises(StorageUnavailableError, match="unknown") as caught:
        await storage.save_chat_message(*IDS, message)
    assert caught.value.stored is None
    assert (await storage.save_chat_message(*IDS, message))[0].position == 2
    assert contents(await storage.fetch_chat(*IDS)) == ["first", "lost"]


async def test_a_record_lost_at_the_commit_is_stored_once(storage, proxy):
    """Stored once, it is the newest: the second attempt finds it and says so."""
    (first,) = await storage.fetch_chat(*IDS)
    record = SummaryRecord(
        summary=(user("so far"),),
        head=(),
        position=1,
        message_id=first.id,
        floor=0,
        covered=Covered(1, 1, 1),
    )
    proxy.cut_after = COMMIT[storage._parts().statements.family]
    assert await storage.summaries().save_summary(ChatKey(*IDS), record, replaces=None)
    assert proxy.cut_after is None
    assert [one.id for one in await storage.summaries().list_summaries(ChatKey(*IDS))] == [
        record.id
    ]


async def test_a_deletion_lost_at_the_commit_is_not_repeated(storage, proxy):
    """How many messages went cannot be told any more: the caller learns that it is unknown."""
    proxy.cut_after = COMMIT[storage._parts().statements.family]
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.delete_chat(*IDS)
    assert caught.value.stored is None
    assert await storage.fetch_chat(*IDS) == []
    assert await storage.delete_chat(*IDS) == 0


async def test_a_server_that_stays_away_is_told_and_nothing_is_stored(storage, proxy):
    """Nothing reaches it, so nothing is stored; when it is back, all goes on.

    Who had a connection that was cut in the act cannot know that, and says so with None.
    """
    proxy.refusing = True
    proxy.cut()
    told = await asyncio.gather(
        *(storage.save_chat_message(*IDS, user("refused")) for _ in range(5)),
        storage.fetch_chat(*IDS),
        storage.ping(),
        storage.trim_chat(*IDS, 1),
        return_exceptions=True,
    )
    assert [type(error) for error in told] == [StorageUnavailableError] * 8
    assert {error.stored for error in told} <= {False, None}
    assert False in {error.stored for error in told}
    proxy.refusing = False
    await storage.save_chat_message(*IDS, user("after"))
    assert contents(await storage.fetch_chat(*IDS)) == ["first", "after"]


async def saved_in_the_end(storage, message):
    """Save a message as often as it takes where one second may be too short for the machine."""
    while True:
        try:
            return await storage.save_chat_message(*IDS, message)
        except StorageUnavailableError:
            continue


async def test_a_server_that_does_not_answer_is_given_up(server_url):
    """The wait is bounded by the store's own time-out, and the connection is not used again."""
    async with Proxy(server_url) as proxy, SqlChatStorage(proxy.url, timeout=1) as storage:
        await saved_in_the_end(storage, user("first"))
        proxy.silent = True
        with pytest.raises(StorageUnavailableError):
            await storage.save_chat_message(*IDS, user("unanswered"))
        proxy.silent = False
        await saved_in_the_end(storage, user("after"))
        async with SqlChatStorage(server_url) as patient:
            kept = contents(await patient.fetch_chat(*IDS))
        assert kept in (["first", "after"], ["first", "unanswered", "after"])


async def test_a_deadlock_is_done_again(server_url):
    """Two transactions lock rows the opposite way round: one of them begins anew by itself."""
    keys = [("user", f"session {number}", "agent") for number in range(2)]
    attempts, holding = [], set()

    def locking(first, second):
        def work(chats):
            connection = chats.connection
            attempts.append(first)
            connection.exec_driver_sql(LOCK.format(first))
            holding.add(first)
            while len(holding) < 2:
                connection.exec_driver_sql("SELECT 1")  # meanwhile the other one gets its lock
            connection.exec_driver_sql(LOCK.format(second))

        return work

    async with SqlChatStorage(server_url) as storage:
        for key in keys:
            await storage.save_chat_message(*key, user("first"))
        await asyncio.gather(storage._write(locking(0, 1)), storage._write(locking(1, 0)))
        assert len(attempts) > 2  # it did come to a deadlock
        ((count,),) = await ask(storage, "SELECT sum(floor) FROM agent_memory_chats")
        assert count == 4  # and each was done once


LOCK = "UPDATE agent_memory_chats SET floor = floor + 1 WHERE session_id = 'session {}'"


async def test_c25_connections_do_not_pile_up(storage, server_url):
    """After much use from many tasks the pool holds what it may, and closing closes all."""
    await asyncio.gather(
        *(storage.save_chat_message(*IDS, user(f"{n}")) for n in range(200)),
        *(storage.fetch_chat(*IDS, 1) for _ in range(200)),
    )
    counting = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()",
        "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = database()",
    }
    ((count,),) = await ask(storage, counting[storage._parts().statements.family])
    assert 1 <= count <= 20


async def test_a_server_restart_in_the_middle(tmp_path):
    """Calls in flight succeed or get `StorageUnavailableError`; the next ones work."""
    try:
        binaries = postgres_binaries()
    except EngineMissingError as error:
        pytest.skip(str(error))
    who = unprivileged_user()
    with private_directory("restart", who) as base:
        with running_postgres(binaries, base, who) as url:
            proxy = Proxy(url)
            await proxy.__aenter__()
            storage = SqlChatStorage(proxy.url)
            await storage.save_chat_message(*IDS, user("first"))
            sent = [user(f"{number}") for number in range(50)]
            saves = [
                asyncio.ensure_future(storage.save_chat_message(*IDS, message)) for message in sent
            ]
            await saves[0]  # the others are on their way
            proxy.refusing = True
            proxy.cut()  # or the server would wait for its clients to leave
            told = await asyncio.gather(*saves, return_exceptions=True)
        assert all(isinstance(one, list | StorageUnavailableError) for one in told)
        with running_postgres(binaries, base, who) as url:
            proxy.refusing = False
            proxy.upstream = "127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])
            await storage.save_chat_message(*IDS, user("last"))
            messages = await storage.fetch_chat(*IDS)
            assert [m.position for m in messages] == list(range(1, len(messages) + 1))
            for message, one in zip(sent, told, strict=True):
                if isinstance(one, list):
                    assert message in messages
                elif one.stored is False:
                    assert message not in messages
            assert messages[-1].content == "last"
            await storage.aclose()
            await proxy.__aexit__()
