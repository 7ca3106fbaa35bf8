"""Summary records in DynamoDB: sizes, races, and what a delete leaves of them."""

from __future__ import annotations

import asyncio
import random

import pytest
from dynamodb_faults import applies_then_cuts, first, refuses
from dynamodb_table import IDS, items_of, user

from agent_memory import ChatKey, StorageUnavailableError, SummarizingChatStorage
from agent_memory.errors import CorruptedRecordError
from agent_memory.records import Covered, SummaryRecord
from agent_memory.testing import ScriptedSummarizer

KEY = ChatKey(*IDS)


def record(text="sum", *, position=2, floor=0, replaces=None):
    return SummaryRecord(
        summary=(user(text),),
        head=(),
        position=position,
        message_id="x",
        floor=floor,
        covered=Covered(floor + 1, position, position - floor),
        replaces=replaces,
    )


@pytest.fixture
async def storage(make):
    """With a chat of four messages."""
    storage = make()
    await storage.save_chat_messages(*IDS, [user(str(n)) for n in range(4)])
    return storage


@pytest.fixture
async def faulty(make, proxy, storage):
    """The same chat, behind the proxy."""
    store = make(endpoint_url=proxy.url)
    await store.fetch_chat(*IDS)
    return store


async def test_a_record_larger_than_an_item_is_stored(storage):
    """Compressed and in parts."""
    large = record(random.Random(1).randbytes(500_000).hex())
    assert await storage.summaries().save_summary(KEY, large, replaces=None) is True
    assert len(await items_of(storage, b"s")) > 2
    assert await storage.summaries().load_summary(KEY) == large
    assert await storage.summaries().list_summaries(KEY) == [large]


async def test_of_two_records_made_at_once_one_wins(storage, make):
    """The loser leaves nothing."""
    stores = [storage, *(make() for _ in range(4))]
    made = [record(str(number)) for number in range(5)]
    outcomes = await asyncio.gather(
        *(
            store.summaries().save_summary(KEY, one, replaces=None)
            for store, one in zip(stores, made, strict=True)
        )
    )
    assert outcomes.count(True) == 1
    assert await storage.summaries().load_summary(KEY) == made[outcomes.index(True)]
    assert len(await items_of(storage, b"s")) == 2


async def test_records_replace_each_other_in_order(storage, make):
    """The list has those that were the newest, oldest first."""
    previous, made = None, []
    for number in range(3):
        made.append(record(str(number), replaces=previous))
        store = make()
        assert await store.summaries().save_summary(KEY, made[-1], replaces=previous) is True
        assert await store.summaries().save_summary(KEY, record(), replaces=previous) is False
        previous = made[-1].id
    assert await storage.summaries().list_summaries(KEY) == made
    assert await storage.summaries().forget_summaries(KEY) == 3
    assert await items_of(storage, b"s") == []


async def test_c106_a_record_that_another_replaced_meanwhile_is_not_replaced(
    faulty, proxy, storage
):
    """Both saw the same newest record; the head is swapped only if it still names that one."""
    old = record("old")
    await storage.summaries().save_summary(KEY, old, replaces=None)
    mine, others = record("mine", replaces=old.id), record("other's", replaces=old.id)

    async def overtake():
        assert await storage.summaries().save_summary(KEY, others, replaces=old.id) is True

    proxy.fail("PutItem", first(overtake))
    assert await faulty.summaries().save_summary(KEY, mine, replaces=old.id) is False
    assert await storage.summaries().load_summary(KEY) == others
    assert await storage.summaries().list_summaries(KEY) == [old, others]


async def test_c39_a_summary_of_a_chat_that_was_deleted_meanwhile_is_refused(
    faulty, proxy, storage
):
    """The delete comes between the look at the floor and the write: the record is void."""

    async def delete():
        await storage.delete_chat(*IDS)
        await storage.save_chat_messages(*IDS, [user("new 1"), user("new 2")])

    proxy.fail("BatchWriteItem", first(delete))
    await faulty.summaries().save_summary(KEY, record(), replaces=None)
    assert await faulty.summaries().load_summary(KEY) is None
    assert await storage.summaries().list_summaries(KEY) == []
    assert await storage.summaries().save_summary(KEY, record(), replaces=None) is False
    anew = record(position=6, floor=4)
    assert await storage.summaries().save_summary(KEY, anew, replaces=None) is True
    assert await storage.summaries().load_summary(KEY) == anew


async def test_a_delete_takes_the_records_out_of_the_table(storage):
    """Their text is gone at once."""
    await storage.summaries().save_summary(KEY, record(), replaces=None)
    await storage.delete_chat(*IDS)
    assert await items_of(storage, b"s") == []


async def test_a_trim_takes_the_records_of_the_old_floor(storage):
    """And leaves those of the new one."""
    await storage.summaries().save_summary(KEY, record(), replaces=None)
    await storage.trim_chat(*IDS, 2)
    assert await items_of(storage, b"s") == []
    later = record(position=4, floor=2)
    assert await storage.summaries().save_summary(KEY, later, replaces=None) is True
    assert await storage.trim_chat(*IDS, 2) == 0
    assert await storage.summaries().load_summary(KEY) == later


async def test_a_record_that_was_stored_unanswered_is_recognised(faulty, proxy, storage):
    """The compare-and-swap succeeded, its answer was lost."""
    made = record()
    proxy.fail("PutItem", applies_then_cuts)
    assert await faulty.summaries().save_summary(KEY, made, replaces=None) is True
    assert await storage.summaries().load_summary(KEY) == made


async def test_a_record_that_cannot_be_stored_leaves_the_old_one(faulty, proxy, storage):
    """Written whole or not at all."""
    old = record("old")
    await storage.summaries().save_summary(KEY, old, replaces=None)
    proxy.fail("PutItem", refuses("AccessDeniedException"))
    with pytest.raises(StorageUnavailableError):
        await faulty.summaries().save_summary(KEY, record("new"), replaces=old.id)
    assert await storage.summaries().load_summary(KEY) == old
    assert await storage.summaries().list_summaries(KEY) == [old]


async def test_c61_a_damaged_record_is_reported(storage):
    """The caller rebuilds its view from the raw log."""
    await storage.summaries().save_summary(KEY, made := record(), replaces=None)
    parts = [item for item in await items_of(storage, b"s") if "zip" in item]
    assert len(parts) == 2  # and the copy in the head

    async def spoil(backend):
        await backend.table.put_all([{**part, "zip": {"B": b"damaged"}} for part in parts])

    await storage._in_loop(spoil(storage._open_components))
    with pytest.raises(CorruptedRecordError, match="summary record"):
        await storage.summaries().load_summary(KEY)
    assert await storage.summaries().list_summaries(KEY) == []
    assert await storage.summaries().save_summary(KEY, record(), replaces=made.id) is True


async def test_loading_is_two_requests(faulty, proxy, storage):
    """The floor, and the head with a copy of the record, at once."""
    await storage.summaries().save_summary(KEY, made := record(), replaces=None)
    proxy.counted()
    assert await faulty.summaries().load_summary(KEY) == made
    assert proxy.counted() == {"Query": 1, "GetItem": 1}


async def test_loading_a_large_record_is_three_requests(faulty, proxy, storage):
    """The floor and the head at once, then the record's parts in one query."""
    made = record(random.Random(1).randbytes(200_000).hex())
    await storage.summaries().save_summary(KEY, made, replaces=None)
    proxy.counted()
    assert await faulty.summaries().load_summary(KEY) == made
    assert proxy.counted() == {"Query": 2, "GetItem": 1}


async def test_a_record_that_is_forgotten_while_it_is_loaded_is_no_damage(faulty, proxy, storage):
    """The head named it a moment ago; its parts are gone."""
    large = record(random.Random(1).randbytes(200_000).hex())
    await storage.summaries().save_summary(KEY, large, replaces=None)

    async def forget():
        await storage.summaries().forget_summaries(KEY)

    async def no_action():
        pass

    proxy.fail("Query", first(no_action), first(forget))
    assert await faulty.summaries().load_summary(KEY) is None


@pytest.mark.parametrize("size", [1, 100])
async def test_a_restart_is_three_requests(faulty, proxy, storage, size):
    """The newest entries in one page, and the record: nothing is read twice."""
    messages = [user(f"say {n}") for n in range(200)]
    for start in range(0, len(messages), size):
        await storage.save_chat_messages(*IDS, messages[start : start + size])
    async with SummarizingChatStorage(storage, ScriptedSummarizer(), close_inner=False) as before:
        await before.fetch_chat(*IDS)
        for number in range(3):
            await before.save_chat_message(*IDS, user(f"more {number}"))
        shown = await before.fetch_chat(*IDS)
    async with SummarizingChatStorage(faulty, ScriptedSummarizer(), close_inner=False) as after:
        await after._ready()
        proxy.counted()
        assert await after.fetch_chat(*IDS) == shown
        assert proxy.counted() == {"Query": 2, "GetItem": 1}
