"""Messages that expire: filtered by readers at once, removed by DynamoDB in its own time."""

from __future__ import annotations

import itertools
from datetime import timedelta

import attrs
import pytest
from dynamodb_faults import applies_then, first
from dynamodb_table import IDS, contents, items_of, remove, table_items, user

import matrix
from agent_memory import ChatKey
from agent_memory.records import Covered, SummaryRecord
from agent_memory.storage.dynamodb.writer import LogWriter

KEY = ChatKey(*IDS)
DAY = 86_400


@pytest.fixture
def storage(make, clock):
    """Messages live for a day."""
    return make(clock=clock, ttl_seconds=DAY)


async def save_one_an_hour(storage, clock, count):
    for number in range(count):
        await storage.save_chat_message(*IDS, user(str(number)))
        clock.advance(hours=1)


async def test_expired_messages_are_left_out(storage, clock):
    """Each a day after it was saved, whether or not DynamoDB has removed it."""
    await save_one_an_hour(storage, clock, 5)
    clock.advance(hours=21)  # 26 hours after the first
    assert await contents(storage) == ["3", "4"]
    assert [m.content for m in await storage.fetch_chat(*IDS, 10)] == ["3", "4"]
    assert [m.content for m in await storage.fetch_chat_since(*IDS, 1)] == ["3", "4"]
    assert [m.content for m in await storage.fetch_all_chats(*IDS[:2])] == ["3", "4"]
    assert [m.content async for m in storage.iter_chat(*IDS)] == ["3", "4"]


async def test_expiry_is_a_rising_floor(storage, make, clock):
    """Reads, saves, listings and other objects tell the same one."""
    await save_one_an_hour(storage, clock, 5)
    clock.advance(hours=21)
    assert (await storage._read(KEY)).floor == 3
    assert (await storage._read(KEY, last=1)).floor == 3
    assert (await storage._read(KEY, after=4)).floor == 3
    assert (await storage._read(KEY, first=1)).floor == 3
    assert (await storage._append(KEY, [user("5")])).floor == 3
    other = make(clock=clock)
    await other._ready()
    assert (await other._append(KEY, [user("6")])).floor == 3
    (info,) = [info async for info in storage.list_chats()]
    assert (info.floor, info.last) == (3, 7)


async def test_a_save_that_is_not_the_first_costs_no_look_for_the_floor(proxy, make, clock):
    """Only once the oldest message is due."""
    storage = make(endpoint_url=proxy.url, clock=clock, ttl_seconds=DAY)
    await storage.save_chat_message(*IDS, user("0"))
    proxy.counted()
    clock.advance(minutes=5)
    await storage.save_chat_message(*IDS, user("1"))
    assert proxy.counted() == {"PutItem": 1}
    clock.advance(hours=23, minutes=56)
    assert await contents(storage) == ["1"]
    await storage.save_chat_message(*IDS, user("2"))
    proxy.counted()
    await storage.save_chat_message(*IDS, user("3"))
    assert proxy.counted() == {"PutItem": 1}


async def test_a_chat_that_has_expired_goes_on_above_all_its_positions(storage, make, clock):
    """Nothing of it is read again, and no position used twice."""
    await save_one_an_hour(storage, clock, 3)
    clock.advance(days=2)
    assert await contents(storage) == []
    assert [info async for info in storage.list_chats()] == []
    floor = (await storage._read(KEY)).floor
    assert floor >= 3
    (saved,) = await storage.save_chat_message(*IDS, user("new"))
    assert saved.position == floor + 1
    assert await contents(make(clock=clock)) == ["new"]


@pytest.mark.parametrize(
    "order",
    matrix.params(map("".join, itertools.permutations("012")), always=["012", "210", "120"]),
)
async def test_the_order_in_which_dynamodb_removes_does_not_matter(storage, make, clock, order):
    """After each removal the chat is as empty, and its floor as high, as before."""
    await save_one_an_hour(storage, clock, 3)
    clock.advance(days=2)
    floor = (await storage._read(KEY)).floor
    log = [item for item in await items_of(storage, b"l") if "expires_at" in item]
    assert len(log) == 3
    for index in map(int, order):
        await remove(storage, [log[index]])
        other = make(clock=clock)
        assert await contents(other) == []
        assert (await other._read(KEY)).floor == floor
        assert [info async for info in other.list_chats()] == []
    (saved,) = await make(clock=clock).save_chat_message(*IDS, user("new"))
    assert saved.position == floor + 1


async def test_a_removed_head_is_no_damage(storage, clock):
    """What DynamoDB has removed is below the floor, not missing."""
    await save_one_an_hour(storage, clock, 5)
    clock.advance(hours=21)
    first, second, *_ = [item for item in await items_of(storage, b"l") if "text" in item]
    await remove(storage, [second])
    assert [entry.content async for entry in storage.iter_log(*IDS)] == ["3", "4"]
    await remove(storage, [first])
    assert [entry.content async for entry in storage.iter_log(*IDS)] == ["3", "4"]


async def test_dynamodb_removes_an_hour_after_readers_stop_showing(storage, clock):
    """The place of an item outlives what any writer believes of it."""
    await storage.save_chat_message(*IDS, user())
    (item,) = [item for item in await items_of(storage, b"l") if "text" in item]
    assert int(item["expires_at"]["N"]) == int(clock.now.timestamp()) + DAY + 3600


async def test_the_attribute_can_be_chosen(make, clock):
    """For tables whose TTL is on already."""
    storage = make(clock=clock, ttl_seconds=DAY, ttl_attribute="gone")
    await storage.save_chat_message(*IDS, user())
    assert any("gone" in item for item in await table_items(storage))


async def test_creating_the_table_turns_ttl_on(storage, dynamodb_endpoint):
    """Where the service has TTL at all (dynalite has not)."""
    await storage.save_chat_message(*IDS, user())

    async def described(backend):
        return await backend.table.request("describe_time_to_live", TableName=backend.table.name)

    state = (await storage._in_loop(described(storage._open_components)))["TimeToLiveDescription"]
    if state["TimeToLiveStatus"] == "DISABLED":
        pytest.skip("this emulator has no TTL")
    assert state["AttributeName"] == "expires_at"


async def test_a_chat_that_began_without_a_limit_is_kept(make, clock):
    """So no older message outlives a newer one."""
    await make(clock=clock).save_chat_message(*IDS, user("kept"))
    await make(clock=clock, ttl_seconds=1).save_chat_message(*IDS, user("after"))
    clock.advance(days=1)
    assert await contents(make(clock=clock)) == ["kept", "after"]


async def test_a_writer_without_a_limit_ends_the_expiry_of_what_follows(storage, make, clock):
    """What was saved with a limit still goes."""
    await storage.save_chat_message(*IDS, user("0"))
    await make(clock=clock).save_chat_message(*IDS, user("1"))
    await storage.save_chat_message(*IDS, user("2"))
    clock.advance(days=2)
    assert await contents(storage) == ["1", "2"]
    assert (await storage._append(KEY, [user("3")])).floor == 1


async def test_messages_expire_also_after_all_that_was_there_is_gone(storage, make, clock):
    """What is left, the anchor, does not expire; the chat was not one without a limit."""
    await storage.save_chat_message(*IDS, user("old"))
    await expire(storage, clock)
    await make(clock=clock, ttl_seconds=DAY).save_chat_message(*IDS, user("new"))
    assert await contents(storage) == ["new"]
    clock.advance(days=1)
    assert await contents(storage) == []


async def test_an_expired_id_can_be_saved_again(storage, clock):
    """It is not known any more."""
    message = user("again")
    await storage.save_chat_message(*IDS, message)
    await storage.save_chat_message(*IDS, user("other"))
    clock.advance(hours=25)
    (saved,) = await storage.save_chat_message(*IDS, message)
    assert await storage.fetch_chat(*IDS) == [saved]
    assert saved.position > 2


async def test_a_writer_does_not_rely_on_a_log_that_has_expired_since(make, clock):
    """Also when it knew the log's end a minute ago: no position is below a floor once read."""
    storage = make(clock=clock, ttl_seconds=60)
    await storage.save_chat_message(*IDS, user("old"))
    clock.advance(seconds=61)
    floor = (await storage._read(KEY)).floor
    (saved,) = await storage.save_chat_message(*IDS, user("new"))
    assert saved.position == floor + 1
    assert await storage.fetch_chat(*IDS) == [saved]


async def test_an_anchor_is_never_lowered(storage, make, clock):
    """A writer that knows less than the table leaves a higher anchor as it is."""
    for number in range(3):
        await storage.save_chat_message(*IDS, user(str(number)))
    (anchor,) = [i for i in await items_of(storage, b"l") if i["kind"]["S"] == "anchor"]

    async def raise_anchor(backend):
        await backend.table.put_all([{**anchor, "reserved": {"N": "5000"}}])

    await storage._in_loop(raise_anchor(storage._open_components))
    other = make(clock=clock, ttl_seconds=DAY)
    await other._ready()
    backend = other._components
    await other._in_loop(lowered(backend))
    clock.advance(days=2)
    await remove(storage, [i for i in await table_items(storage) if "expires_at" in i])
    (saved,) = await make(clock=clock).save_chat_message(*IDS, user("new"))
    assert saved.position == 5001


async def lowered(backend):
    end = await backend.reader.end(KEY)
    await backend.writer.reserve(KEY, end, attrs.evolve(end, reserved=0))


async def test_a_crash_before_the_anchor_is_made_good_by_the_next_save(
    storage, make, clock, monkeypatch
):
    """The message is there all the same, and no position is used twice."""

    async def crashes(_writer, _key, _before, end):
        return end

    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "reserve", crashes)
        await storage.save_chat_message(*IDS, user("1"))
    assert not [i for i in await items_of(storage, b"l") if i["kind"]["S"] == "anchor"]
    await make(clock=clock, ttl_seconds=DAY).save_chat_message(*IDS, user("2"))
    assert await contents(storage) == ["1", "2"]
    await expire(storage, clock)
    (late,) = await make(clock=clock, ttl_seconds=DAY).save_chat_message(*IDS, user("late"))
    assert late.position > 2


async def test_a_trimmed_batch_expires_whole(storage, clock):
    """Also what a trim left of it."""
    await storage.save_chat_messages(*IDS, [user(str(n)) for n in range(4)])
    clock.advance(hours=1)
    await storage.save_chat_message(*IDS, user("4"))
    await storage.trim_chat(*IDS, 3)
    assert await contents(storage) == ["2", "3", "4"]
    clock.advance(hours=22, minutes=59)
    assert await contents(storage) == ["2", "3", "4"]
    clock.advance(minutes=1)
    assert await contents(storage) == ["4"]
    assert (await storage._append(KEY, [user("5")])).floor == 4


async def test_a_deleted_chat_keeps_its_floor_when_all_has_expired(storage, clock):
    """Trim and delete expire too, and the floor stays."""
    await save_one_an_hour(storage, clock, 3)
    await storage.delete_chat(*IDS)
    clock.advance(days=3)
    await remove(storage, [i for i in await table_items(storage) if "expires_at" in i])
    (saved,) = await storage.save_chat_message(*IDS, user("new"))
    assert saved.position > 3
    assert (await storage._read(KEY)).floor == saved.position - 1


async def test_a_risen_floor_voids_the_summary(storage, clock):
    """A summary of expired text is not shown."""
    await save_one_an_hour(storage, clock, 3)
    record = SummaryRecord(
        summary=(user("sum"),),
        head=(),
        position=2,
        message_id="x",
        floor=0,
        covered=Covered(1, 2, 2),
    )
    summaries = storage.summaries()
    assert await summaries.save_summary(KEY, record, replaces=None) is True
    assert await summaries.load_summary(KEY) == record
    clock.advance(hours=22)
    assert await summaries.load_summary(KEY) is None
    assert await summaries.list_summaries(KEY) == []
    assert await summaries.save_summary(KEY, record, replaces=None) is False


async def test_purge_takes_what_expired_chats_left(storage, clock):
    """Anchors too."""
    await save_one_an_hour(storage, clock, 3)
    clock.advance(days=2)
    await remove(storage, [i for i in await table_items(storage) if "expires_at" in i])
    assert len(await table_items(storage)) == 1
    assert await storage.purge(timedelta(days=1)) == 1
    assert await table_items(storage) == []


async def expire(storage, clock):
    """Let all messages expire, and DynamoDB remove them."""
    clock.advance(days=2)
    await remove(storage, [i for i in await table_items(storage) if "expires_at" in i])


async def nothing():
    """Let one request pass."""


DEAD = ("expired", "anchor", "deleted")
MOMENTS = [("Query", 2), ("Query", 3), ("BatchWriteItem", 0), ("DeleteItem", 0)]


@pytest.mark.parametrize(
    ("dead", "moment"),
    matrix.params(
        list(itertools.product(DEAD, MOMENTS)),
        always=list(zip(itertools.cycle(DEAD), MOMENTS, strict=False)),
    ),
)
async def test_no_position_is_used_twice_after_a_save_during_a_purge(
    proxy, make, clock, dead, moment
):
    """Not even when that expires too: an anchor is kept, or written anew."""
    storage = make(endpoint_url=proxy.url, clock=clock, ttl_seconds=DAY)
    other = make(clock=clock, ttl_seconds=DAY)
    await save_one_an_hour(storage, clock, 3)
    if dead == "deleted":
        for text in ("3", "4"):  # the second one's item tells what the anchor reserves
            await storage.save_chat_message(*IDS, user(text))
        await storage.delete_chat(*IDS)
        clock.advance(hours=2)
    elif dead == "anchor":
        await expire(storage, clock)
    else:
        clock.advance(days=2)
    saved = []

    async def save():
        saved.extend(await other.save_chat_message(*IDS, user("during")))

    operation, passing = moment
    proxy.fail(operation, *[first(nothing)] * passing, first(save))
    await storage.purge(timedelta(0))
    if (dead, operation) == ("anchor", "BatchWriteItem"):
        assert not saved  # there is nothing but the anchor to remove
        return
    assert await contents(storage) == ["during"]
    await expire(storage, clock)
    (late,) = await make(clock=clock, ttl_seconds=DAY).save_chat_message(*IDS, user("late"))
    assert late.position > saved[0].position


async def test_two_writers_begin_a_chat_again_at_once(proxy, make, clock):
    """The second one raises the anchor: that is no purge, and the first one's item stays."""
    storage = make(endpoint_url=proxy.url, clock=clock, ttl_seconds=DAY)
    other = make(clock=clock, ttl_seconds=DAY)
    await storage.save_chat_message(*IDS, user("old"))
    await expire(storage, clock)

    async def save():
        await other.save_chat_message(*IDS, user("2"))

    proxy.fail("GetItem", first(save))  # it looks for the anchor after its put
    await storage.save_chat_message(*IDS, user("1"))
    assert await contents(storage) == ["1", "2"]
    assert not [note async for note in storage.iter_log(*IDS) if note.id.startswith("corrupted")]


async def test_a_save_into_a_dead_chat_leaves_a_higher_anchor_as_high(storage, make, clock):
    """It is written anew, so that a purge under way does not remove it."""
    await storage.save_chat_message(*IDS, user())
    await make(clock=clock, ttl_seconds=DAY).delete_chat(*IDS)
    (anchor,) = [i for i in await items_of(storage, b"l") if i["kind"]["S"] == "anchor"]
    raised = {**anchor, "reserved": {"N": "5000"}}

    async def put(backend):
        await backend.table.put_all([raised])

    await storage._in_loop(put(storage._open_components))
    await make(clock=clock, ttl_seconds=DAY).save_chat_message(*IDS, user())
    (after,) = [i for i in await items_of(storage, b"l") if i["kind"]["S"] == "anchor"]
    assert after["reserved"] == raised["reserved"]
    assert after["token"] != raised["token"]


async def test_a_purge_counts_an_anchor_whose_removal_was_not_answered(proxy, make, clock):
    """The second attempt finds it gone."""
    storage = make(endpoint_url=proxy.url, clock=clock, ttl_seconds=DAY)
    await storage.save_chat_message(*IDS, user())
    clock.advance(days=2)
    proxy.fail("DeleteItem", applies_then("InternalServerError"))
    assert await storage.purge(timedelta(0)) == 1
    assert await table_items(storage) == []


async def test_purge_leaves_for_an_hour_what_has_expired(storage, make, clock):
    """Another machine's clock may not have got there, and its writer go on below the anchor."""
    await storage.save_chat_message(*IDS, user())
    clock.advance(days=1, minutes=59)
    assert await storage.purge(timedelta(0)) == 0
    clock.advance(minutes=1)
    assert await storage.purge(timedelta(0)) == 1
