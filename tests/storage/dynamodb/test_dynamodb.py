"""DynamoDbChatStorage: what it costs, large chats, removal, options, clients and loops."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import warnings
from datetime import timedelta

import pytest
from dynamodb_faults import refuses
from dynamodb_table import IDS, contents, items_of, table_items, user

from agent_memory import (
    ChatKey,
    ConversationMessage,
    DynamoDbChatStorage,
    InvalidRequestError,
    StorageUnavailableError,
)
from agent_memory.errors import (
    CorruptedRecordError,
    MessageTooLargeError,
    MissingDependencyError,
    StorageClosedError,
    StorageConflictError,
)
from agent_memory.storage.dynamodb import table_layout
from agent_memory.storage.dynamodb.writer import LogWriter

KEY = ChatKey(*IDS)

# ------------------------------------------------------------------------- requests, counted


@pytest.fixture
async def counted(proxy, make):
    """A store behind a proxy that counts, warm for the chat, with two messages in it."""
    storage = make(endpoint_url=proxy.url)
    await storage.save_chat_messages(*IDS, [user("1"), user("2")])
    proxy.counted()
    return proxy, storage


async def test_a_warm_save_is_one_request(counted):
    """Whoever saved last knows the end of the log."""
    proxy, storage = counted
    await storage.save_chat_message(*IDS, user())
    assert proxy.counted() == {"PutItem": 1}


async def test_a_cold_save_is_two_requests(counted, make):
    """One look at the end of the log, one put."""
    proxy, _ = counted
    cold = make(endpoint_url=proxy.url, create_table=False)
    await cold.save_chat_message(*IDS, user())
    assert proxy.counted() == {"Query": 1, "PutItem": 1}
    await cold.save_chat_message("user", "session", "new", user())
    assert proxy.counted() == {"Query": 1, "PutItem": 1}


async def test_saves_that_wait_share_an_item(counted):
    """The first goes alone, the others together."""
    proxy, storage = counted
    await asyncio.gather(*(storage.save_chat_message(*IDS, user(str(n))) for n in range(50)))
    assert proxy.counted()["PutItem"] <= 10
    assert len(await contents(storage)) == 52


async def test_waiting_saves_share_an_item_up_to_a_size(storage):
    """One big save goes alone; small ones go together, so that none makes another one big."""
    await storage.save_chat_message(*IDS, user("first"))
    sizes = [30_000] * 10 + [250_000] + [30_000] * 3
    await asyncio.gather(*(storage.save_chat_message(*IDS, user("x" * n)) for n in sizes))
    texts = [item["text"]["S"] for item in await items_of(storage, b"l")]
    assert len(texts) < len(sizes)
    *small, big = sorted(map(len, texts))
    assert big > 250_000
    assert max(small) < 100_100


async def test_c16_a_save_with_a_changed_message_is_refused_alone(counted):
    """Those that wait with it are stored."""
    _, storage = counted
    await storage.save_chat_message(*IDS, old := user("old"))
    changed = [user("new"), user("changed", id=old.id)]
    batches = [[user("a")], [user("b")], changed, [user("c"), old]]
    saves = [storage.save_chat_messages(*IDS, batch) for batch in batches]
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert [type(one) for one in outcomes] == [list, list, StorageConflictError, list]
    assert await contents(storage) == ["1", "2", "old", "a", "b", "c"]
    assert [message.position for message in outcomes[3]] == [6, 3]


async def test_a_fetch_is_one_request(counted):
    """The whole chat, its newest, nothing: one query each."""
    proxy, storage = counted
    assert await contents(storage) == ["1", "2"]
    assert proxy.counted() == {"Query": 1}
    assert [m.content for m in await storage.fetch_chat(*IDS, 1)] == ["2"]
    assert proxy.counted() == {"Query": 1}
    assert await storage.fetch_chat("user", "session", "nobody") == []
    assert proxy.counted() == {"Query": 1}


async def test_looking_for_what_is_new_is_one_request(counted):
    """Whether or not there is something."""
    proxy, storage = counted
    assert await storage.fetch_chat_since(*IDS, 2) == []
    assert proxy.counted() == {"Query": 1}
    assert [m.content for m in await storage.fetch_chat_since(*IDS, 1)] == ["2"]
    assert proxy.counted() == {"Query": 1}


async def test_a_session_is_one_request(counted):
    """All agents' chats lie side by side."""
    proxy, storage = counted
    for agent in ("a", "b", "c"):
        await storage.save_chat_message("user", "session", agent, user(agent))
    proxy.counted()
    assert len(await storage.fetch_all_chats("user", "session")) == 5
    assert proxy.counted() == {"Query": 1}


async def test_reads_are_strongly_consistent(counted):
    """Every query, scan and get asks for it."""
    proxy, storage = counted
    proxy.bodies.clear()
    await storage.fetch_all_chats("user", "session")
    _ = [info async for info in storage.list_chats()]
    await storage.trim_chat(*IDS, 1)
    await storage.summaries().load_summary(KEY)
    reads = [body for name, body in proxy.bodies if name in ("Query", "Scan", "GetItem")]
    assert len(reads) > 5
    assert all(body["ConsistentRead"] is True for body in reads)


# ---------------------------------------------------------------------------- large contents


async def test_c23_a_session_of_1200_messages_and_two_megabytes_comes_back_whole(storage):
    """Pages are followed to the last one, whatever shape the messages have."""
    texts = random.Random(23)
    sent = []
    for start in range(0, 1200, 40):
        batch = [
            ConversationMessage(
                "assistant" if number % 2 else "user",
                odd_content(number) or texts.randbytes(1000).hex(),
            )
            for number in range(start, start + 40)
        ]
        await storage.save_chat_messages("user", "session", f"agent{start % 3}", batch)
        sent += batch
    fetched = await storage.fetch_all_chats("user", "session")
    assert len(fetched) == 1200
    assert {m.id: m for m in fetched} == {m.id: m for m in sent}


def odd_content(number):
    """Content that begins with no text block, for some of the messages."""
    return {
        1: [{"toolUse": {"toolUseId": "1", "name": "search", "input": {"n": 1, "t": 36.6}}}],
        2: [{"toolResult": {"toolUseId": "1", "content": [{"text": "x"}]}}],
        3: [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}, {"text": "see"}],
        4: [{"text": ""}],
        5: "plain",
    }.get(number % 100)


async def test_c08_many_megabytes_in_one_save_are_stored_whole(storage):
    """Parts in several batches, and a log that goes on."""
    noise = random.Random(8).randbytes(3_000_000).hex()
    batch = [user(noise), user("small"), user(noise[::-1])]
    await storage.save_chat_messages(*IDS, batch)
    await storage.save_chat_message(*IDS, last := user("last"))
    assert await storage.fetch_chat(*IDS) == [*batch, last]
    assert await storage.fetch_chat_since(*IDS, 2) == [batch[2], last]
    assert await storage.fetch_all_chats("user", "session") == [*batch, last]


async def test_what_compresses_well_stays_one_item(storage):
    """A megabyte of one letter needs no parts."""
    await storage.save_chat_message(*IDS, message := user("x" * 1_000_000))
    assert await storage.fetch_chat(*IDS) == [message]
    assert len(await table_items(storage)) == 1


@pytest.mark.parametrize("size", [398_000, 399_000, 399_400, 399_700, 400_000, 409_600])
async def test_texts_around_the_size_of_an_item_are_stored(storage, size):
    """No size falls between the forms."""
    text = random.Random(size).randbytes(size // 2).hex()
    await storage.save_chat_message(*IDS, message := user(text))
    assert await storage.fetch_chat(*IDS) == [message]


async def test_c08_more_than_a_save_can_hold_is_refused_whole(storage, monkeypatch):
    """Nothing shows, nothing is left, the next save is fine."""
    monkeypatch.setattr(table_layout, "MAX_BODY", 500_000)
    with pytest.raises(MessageTooLargeError, match="500,000 bytes") as caught:
        await storage.save_chat_message(*IDS, user(random.Random(8).randbytes(600_000).hex()))
    assert caught.value.stored is False
    await storage.save_chat_message(*IDS, user("fine"))
    assert await contents(storage) == ["fine"]
    assert len(await table_items(storage)) == 1


async def test_too_many_messages_for_one_item_are_refused(storage):
    """Beyond 20,000 the hashes of their ids would fill the item."""
    batch = [user("x")] * 1 + [user("x") for _ in range(20_000)]
    with pytest.raises(MessageTooLargeError, match="20,000"):
        await storage.save_chat_messages(*IDS, batch)


async def test_c16_a_large_batch_is_known_as_long_as_it_is_the_last(storage, make):
    """All of the last append is known, of earlier ones the newest 64 ids."""
    batch = [user(str(number)) for number in range(300)]
    await storage.save_chat_messages(*IDS, batch)
    again = await make().save_chat_messages(*IDS, batch[:10])
    assert [message.position for message in again] == list(range(1, 11))
    await storage.save_chat_message(*IDS, user("next"))
    again = await storage.save_chat_messages(*IDS, batch[-63:])
    assert [message.position for message in again] == list(range(238, 301))
    assert len(await contents(storage)) == 301


# ------------------------------------------------------------------- trimming, what is left


async def test_deleted_text_is_out_of_the_table_at_once(storage):
    """Tombstones and the floor stay, without content; so do no parts."""
    await storage.save_chat_message(*IDS, user("secret"))
    await storage.save_chat_message(*IDS, user(random.Random(1).randbytes(500_000).hex()))
    assert await storage.delete_chat(*IDS) == 2
    left = await table_items(storage)
    assert not any("text" in item or "zip" in item for item in left)
    assert len(left) == 3


async def test_a_trim_takes_text_out_of_the_middle_of_a_batch(storage):
    """The item is rewritten with what lives."""
    await storage.save_chat_messages(*IDS, [user(f"secret {n}") for n in range(5)])
    assert await storage.trim_chat(*IDS, 2) == 3
    assert await contents(storage) == ["secret 3", "secret 4"]
    stored = str([item.get("text") for item in await table_items(storage)])
    assert "secret 2" not in stored
    assert "secret 3" in stored
    assert await storage.trim_chat(*IDS, 1) == 1
    assert await contents(storage) == ["secret 4"]


async def test_a_trim_cuts_a_batch_that_is_in_parts(storage):
    """New parts with what lives, the old ones removed."""
    noise = [random.Random(n).randbytes(200_000).hex() for n in range(4)]
    await storage.save_chat_messages(*IDS, [user(text) for text in noise])
    before = {item["sk"]["B"] for item in await items_of(storage, b"p")}
    assert await storage.trim_chat(*IDS, 3) == 1
    assert await contents(storage) == noise[1:]
    after = {item["sk"]["B"] for item in await items_of(storage, b"p")}
    assert after
    assert not before & after


async def test_old_items_are_removed_for_good(make, clock):
    """An hour after it was written an item leaves no tombstone."""
    storage = make(clock=clock)
    for number in range(5):
        await storage.save_chat_message(*IDS, user(str(number)))
    clock.advance(hours=2)
    assert await storage.trim_chat(*IDS, 2) == 3
    assert len(await table_items(storage)) == 3
    assert await contents(storage) == ["3", "4"]


async def test_tombstones_go_with_a_later_trim(make, clock):
    """Nothing accumulates."""
    storage = make(clock=clock)
    for number in range(5):
        await storage.save_chat_message(*IDS, user(str(number)))
    await storage.trim_chat(*IDS, 2)
    assert len(await table_items(storage)) == 6
    clock.advance(hours=2)
    await storage.save_chat_message(*IDS, user("5"))
    assert await storage.trim_chat(*IDS, 1) == 2
    assert len(await table_items(storage)) == 2
    assert await contents(storage) == ["5"]


async def test_floors_of_old_trims_are_removed(make, clock):
    """Also those that share the position of the newest one."""
    storage = make(clock=clock)
    await storage.save_chat_messages(*IDS, [user(str(n)) for n in range(9)])
    for keep in (6, 3, 0):
        await storage.trim_chat(*IDS, keep)
    clock.advance(hours=2)
    await storage.delete_chat(*IDS)
    assert len(await table_items(storage)) == 1


async def test_a_repeat_tells_the_floor_that_another_object_raised(storage, make):
    """A save that stores nothing new does not rely on what its writer knew."""
    await storage.save_chat_messages(*IDS, [user("0"), last := user("1")])
    await make().trim_chat(*IDS, 1)
    assert (await storage._append(KEY, [last])).floor == 1


async def test_many_trims_do_not_hide_messages_from_a_stream(storage):
    """Items without entries between the messages do not end a page early."""
    for number in range(30):
        await storage.save_chat_messages(*IDS, [user(str(number))])
        await storage.trim_chat(*IDS, 20)
    found = (await storage._read(KEY, first=15)).messages
    assert [message.content for message in found] == [str(n) for n in range(10, 25)]


async def test_a_listing_tells_the_end_of_long_chats(storage):
    """A chat of more items than a page, between short ones, and again as the last one."""
    for agent, count in (("a", 2), ("b", 11), ("c", 1), ("d", 20)):
        for number in range(count):
            await storage.save_chat_message("user", "session", agent, user(str(number)))
    found = [(info.key.agent_id, info.last) async for info in storage.list_chats("user")]
    assert found == [("a", 2), ("b", 11), ("c", 1), ("d", 20)]


async def test_purge_leaves_nothing_of_a_deleted_chat(make, clock):
    """Floor, tombstones, parts and records are gone; a living chat is not."""
    storage = make(clock=clock)
    await storage.save_chat_message(*IDS, user(random.Random(1).randbytes(500_000).hex()))
    await storage.save_chat_message("user", "session", "other", user("lives"))
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)
    assert await storage.purge(timedelta(0)) == 1
    assert len(await table_items(storage)) == 1
    (saved,) = await storage.save_chat_message(*IDS, user("anew"))
    assert saved.position == 1


async def test_purge_leaves_what_a_writer_may_rely_on(make, clock):
    """However small the age: one that knows the chat from before goes on above its floor."""
    storage, writer, deleter = make(clock=clock), make(clock=clock), make(clock=clock)
    await writer.save_chat_messages(*IDS, [user("1"), user("2")])
    await storage.delete_chat(*IDS)
    clock.advance(minutes=9)
    assert await storage.purge(timedelta(0)) == 0
    (saved,) = await writer.save_chat_message(*IDS, user("3"))
    assert saved.position == 3
    assert [entry async for entry in storage.iter_log(*IDS)] == [saved]
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)
    await deleter.delete_chat(*IDS)  # it has read the end, but there was nothing to write
    assert await storage.purge(timedelta(0)) == 1
    (anew,) = await storage.save_chat_message(*IDS, user("4"))
    await deleter.save_chat_message(*IDS, user("5"))
    assert anew.position == 1
    assert await contents(make(clock=clock)) == ["4", "5"]


async def test_purge_removes_parts_that_no_item_shows(make, clock):
    """What a crash left, once it is old enough to belong to no append under way."""
    storage = make(clock=clock)
    noise = random.Random(1).randbytes(500_000).hex()
    await storage.save_chat_message(*IDS, message := user(noise))
    (first, *_) = await items_of(storage, b"p")
    stray = {**first, "sk": {"B": first["sk"]["B"][:-12] + b"strayed." + b"\0\0\0\0"}}

    async def put(backend):
        await backend.table.put_all([stray])

    await storage._in_loop(put(storage._open_components))
    assert await storage.fetch_chat(*IDS) == [message]
    await storage.purge(timedelta(0))
    assert stray in await items_of(storage, b"p")
    clock.advance(hours=2)
    await storage.purge(timedelta(0))
    assert stray not in await items_of(storage, b"p")
    assert await storage.fetch_chat(*IDS) == [message]


# --------------------------------------------------------------- writers that slept too long


async def test_a_writer_that_rested_looks_again_before_it_writes(make, clock):
    """Ten minutes are the longest that a writer relies on what it knows."""
    storage, other = make(clock=clock), make(clock=clock)
    await storage.save_chat_message(*IDS, user("0"))
    for number in range(1, 4):
        await other.save_chat_message(*IDS, user(str(number)))
    clock.advance(hours=2)
    await other.trim_chat(*IDS, 1)  # the place that the first writer would take is free again
    (saved,) = await storage.save_chat_message(*IDS, user("4"))
    assert saved.position == 5
    assert await contents(other) == ["3", "4"]


async def test_a_writer_that_froze_in_the_middle_of_a_save_takes_it_back(make, clock):
    """Its put succeeded at a place that had been given up: it notices, and appends anew."""
    storage, other = make(clock=clock), make(clock=clock)
    await storage.save_chat_message(*IDS, user("0"))
    for number in range(1, 4):
        await other.save_chat_message(*IDS, user(str(number)))
    writer = storage._components.writer
    put_with_body = type(writer).put_with_body

    async def frozen(self, *arguments, **options):
        if self is writer and clock.now.hour == 0:
            clock.advance(hours=2)
            await asyncio.to_thread(asyncio.run, other.trim_chat(*IDS, 1))
        return await put_with_body(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(writer), "put_with_body", frozen)
        (saved,) = await storage.save_chat_message(*IDS, user("mine"))
    assert saved.position == 5
    assert await contents(other) == ["3", "mine"]
    assert not any("mine" in str(item.get("text")) for item in (await dead(other, 5)))


async def test_a_writer_that_froze_and_cannot_look_does_not_say_that_nothing_was_stored(
    make, clock, proxy, monkeypatch
):
    """Its item is there, and shows unless its place had been given up."""
    storage = make(clock=clock, endpoint_url=proxy.url)
    await storage.save_chat_message(*IDS, user("0"))
    put = LogWriter.put_with_body

    async def frozen(self, *arguments, **options):
        stored = await put(self, *arguments, **options)
        clock.advance(hours=2)
        proxy.fail("Query", refuses("AccessDeniedException"))
        return stored

    monkeypatch.setattr(LogWriter, "put_with_body", frozen)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_message(*IDS, user("1"))
    assert caught.value.stored is None
    assert await contents(storage) == ["0", "1"]


async def dead(storage, living):
    """Return the log items below a position."""
    items = await items_of(storage, b"l")
    return [item for item in items if int.from_bytes(item["sk"]["B"][-12:-4], "big") < living]


# --------------------------------------------------------------------- tables, options, loops


async def test_c21_two_replicas_make_the_table_at_once(make):
    """Both work."""
    replicas = [make() for _ in range(4)]
    await asyncio.gather(*(replica.save_chat_message(*IDS, user()) for replica in replicas))
    assert len(await contents(replicas[0])) == 4


async def test_a_table_with_other_keys_is_refused(make, dynamodb_table, monkeypatch):
    """The error says which keys are needed."""
    from agent_memory.storage.dynamodb import connection  # noqa: PLC0415

    with monkeypatch.context() as patch:
        patch.setattr(
            connection,
            "_KEY_TYPES",
            [{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
        )
        with pytest.raises(InvalidRequestError, match=r"'sk' \(B\)"):
            await make().fetch_chat(*IDS)
    with pytest.raises(InvalidRequestError, match=r"'sk' \(B\)"):
        await make().fetch_chat(*IDS)


async def test_a_newer_layout_is_refused(storage):
    """Nothing is read or written by guess."""
    await storage.save_chat_message(*IDS, user())

    async def spoil(backend):
        (item,) = await backend.table.scan(only=()).all()
        await backend.table.put_all([{**item, "v": {"N": "2"}}])

    await storage._in_loop(spoil(storage._open_components))
    with pytest.raises(CorruptedRecordError, match="upgrade"):
        await storage.fetch_chat(*IDS)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"table_name": "x"}, "table_name"),
        ({"table_name": "no spaces"}, "table_name"),
        ({"table_name": None}, "table_name"),
        ({"endpoint_url": "http://bob:secret@localhost:8000"}, "credentials come from"),
        ({"endpoint_url": 8000}, "endpoint_url"),
        ({"ttl_seconds": 0}, "ttl_seconds"),
        ({"ttl_seconds": 1.5}, "ttl_seconds"),
        ({"ttl_seconds": True}, "ttl_seconds"),
        ({"ttl_attribute": "expires"}, "give ttl_seconds"),
        ({"ttl_attribute": "at", "ttl_seconds": 5}, "layout"),
        ({"ttl_attribute": "", "ttl_seconds": 5}, "ttl_attribute"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": "1"}, "timeout"),
    ],
)
def test_senseless_options_are_refused(arguments, text):
    """Early, with what to do."""
    with pytest.raises(InvalidRequestError, match=text):
        DynamoDbChatStorage(**{"table_name": "chats", **arguments})


def test_a_missing_sdk_names_the_extra(monkeypatch):
    """``pip install 'agent-memory-storage[dynamodb]'``."""
    monkeypatch.setitem(sys.modules, "aioboto3", None)
    with pytest.raises(MissingDependencyError, match=r"\[dynamodb\]"):
        DynamoDbChatStorage("chats")


async def test_a_missing_region_says_what_to_give(monkeypatch, tmp_path):
    """The SDK's own error does not name our argument."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StorageUnavailableError, match="region="):
        await DynamoDbChatStorage("chats").fetch_chat(*IDS)


async def test_the_callers_session_gives_credentials(make):
    """An aioboto3 session is used as it is."""
    import aioboto3  # noqa: PLC0415

    session = aioboto3.Session(
        aws_access_key_id="one", aws_secret_access_key="two", region_name="eu-west-1"
    )
    storage = make(session=session)
    await storage.save_chat_message(*IDS, user())
    assert await contents(storage) == ["hello"]


@pytest.fixture
async def client(dynamodb_endpoint):
    import aioboto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    config = Config(retries={"total_max_attempts": 1})
    making = aioboto3.Session().client(
        "dynamodb", endpoint_url=dynamodb_endpoint, config=config, region_name="eu-central-1"
    )
    async with making as client:
        yield client


async def test_the_callers_client_is_used_and_left_open(client, make):
    """On the caller's loop, without a thread; closing the store leaves it open."""
    storage = make(client=client, endpoint_url=None)
    threads = threading.active_count()
    await asyncio.gather(*(storage.save_chat_message(*IDS, user(str(n))) for n in range(20)))
    assert len(await contents(storage)) == 20
    assert threading.active_count() == threads
    await storage.aclose()
    assert (await client.list_tables())["TableNames"]


async def test_closing_leaves_no_save_over_the_callers_client_without_an_answer(client, make):
    """What waits is stored, in the caller's loop; what comes later is refused."""
    storage = make(client=client, endpoint_url=None)
    await storage.save_chat_message(*IDS, user("first"))
    saves = [asyncio.ensure_future(storage.save_chat_message(*IDS, user("x"))) for _ in range(9)]
    await asyncio.sleep(0)  # each of them has been begun
    await storage.aclose()
    assert len(await asyncio.gather(*saves)) == 9
    with pytest.raises(StorageClosedError):
        await storage.save_chat_message(*IDS, user("late"))
    assert len(await contents(make())) == 10


async def test_the_callers_client_serves_one_loop(client, make):
    """Another loop gets a clear error."""
    storage = make(client=client, endpoint_url=None)
    await storage.save_chat_message(*IDS, user())
    with pytest.raises(InvalidRequestError, match="session="):
        await asyncio.to_thread(asyncio.run, storage.fetch_chat(*IDS))


async def test_c22_a_save_over_the_callers_client_is_cancelled_whole(client, make):
    """Stored whole or not at all, and the next save is right."""
    storage = make(client=client, endpoint_url=None)
    await storage.save_chat_message(*IDS, user("first"))
    for ticks in range(12):
        saves = [
            asyncio.ensure_future(storage.save_chat_messages(*IDS, [user("a"), user("b")]))
            for _ in range(3)
        ]
        for _ in range(ticks):
            await asyncio.sleep(0)
        for save in saves:
            save.cancel()
        await asyncio.gather(*saves, return_exceptions=True)
    await storage.save_chat_message(*IDS, user("last"))
    texts = await contents(storage)
    assert texts == ["first", *["a", "b"] * ((len(texts) - 2) // 2), "last"]


async def test_it_serves_short_lived_loops_in_threads(storage):
    """``asyncio.run`` in worker threads, twenty at once."""
    save = storage.save_chat_message

    def work(number):
        asyncio.run(save(*IDS, user(str(number))))

    await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(20)))
    fetched = await storage.fetch_chat(*IDS)
    assert [message.position for message in fetched] == list(range(1, 21))


async def test_a_forgotten_store_warns_once_and_ends_its_thread(dynamodb_endpoint, dynamodb_table):
    """A ResourceWarning that names the table."""
    storage = DynamoDbChatStorage(
        dynamodb_table, endpoint_url=dynamodb_endpoint, create_table=True
    )
    await storage.save_chat_message(*IDS, user())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del storage
        gc.collect()
    ours = [one for one in caught if dynamodb_table in str(one.message)]
    assert [one.category for one in ours] == [ResourceWarning]


async def test_a_store_whose_client_cannot_be_made_leaves_no_thread(make):
    """A bad endpoint is told, and tried again at the next call."""
    storage = make(endpoint_url="no url")
    threads = threading.active_count()
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="no url"):
            await storage.fetch_chat(*IDS)
    assert threading.active_count() == threads


def test_repr_names_the_table():
    """And no secret."""
    assert repr(DynamoDbChatStorage("chats")) == "DynamoDbChatStorage('chats')"
