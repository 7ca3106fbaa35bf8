"""DynamoDbChatStorage when requests are throttled, lost, cut or answered too late."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import aioboto3
import pytest
from botocore.config import Config
from dynamodb_faults import (
    answers_an_empty_page,
    applies_then,
    applies_then_cuts,
    applies_then_cuts_after,
    applies_then_hangs,
    cuts,
    first,
    leaves_all_but_the_first_unprocessed,
    leaves_all_but_the_last_unprocessed,
    leaves_the_last_unprocessed,
    refuses,
    throttles,
)
from dynamodb_table import IDS, contents, items_of, table_items, user

from agent_memory import (
    DynamoDbChatStorage,
    InvalidRequestError,
    StorageUnavailableError,
)
from agent_memory.storage._engine.backoff import Backoff


def large(characters=900_000):
    """A message that does not fit into an item, compressed or not."""
    return user(random.Random(1).randbytes(characters // 2).hex())


@pytest.fixture
def make(make, proxy):
    """Makes stores behind the proxy, or beside it."""

    def behind_or_beside(*, direct=False, **options):
        return make(**options) if direct else make(endpoint_url=proxy.url, **options)

    return behind_or_beside


@pytest.fixture
async def storage(make, proxy):
    storage = make()
    await storage.fetch_chat(*IDS)
    proxy.counted()
    proxy.bodies.clear()
    return storage


@pytest.fixture
def few_attempts(monkeypatch):
    """A few attempts instead of a time limit, whatever the machine."""

    async def no_pause(self):
        self._ceiling *= 2

    monkeypatch.setattr(Backoff, "wait", no_pause)
    monkeypatch.setattr(
        Backoff, "expired", property(lambda backoff: backoff._ceiling > 0.02 * 2**5)
    )


@pytest.fixture
def impatient(storage, few_attempts):
    """A few attempts, and the table is there."""


async def parts(storage):
    return await items_of(storage, b"p")


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "InternalServerError",
    ],
)
async def test_a_throttled_save_is_tried_again(storage, proxy, code):
    """Three refusals, then it is stored, once."""
    proxy.fail("PutItem", *[refuses(code)] * 3)
    await storage.save_chat_message(*IDS, user())
    assert proxy.counted()["PutItem"] == 4
    assert await contents(storage) == ["hello"]


async def test_a_throttled_read_is_tried_again(storage, proxy):
    """Reads are retried like writes."""
    await storage.save_chat_message(*IDS, user())
    proxy.fail("Query", throttles, refuses("ServiceUnavailable", 503), cuts)
    assert await contents(storage) == ["hello"]


async def test_endless_throttling_ends_as_unavailable(make, proxy, impatient):
    """After the time limit the error says that nothing was stored."""
    storage = make()
    await storage.save_chat_message(*IDS, user())
    proxy.fail("PutItem", *[throttles] * 100)
    with pytest.raises(StorageUnavailableError, match="ProvisionedThroughput") as caught:
        await storage.save_chat_message(*IDS, user())
    assert caught.value.stored is False
    assert caught.value.key is not None


@pytest.mark.parametrize(
    "fault", [applies_then_cuts, applies_then("InternalServerError")], ids=["cut", "500"]
)
async def test_c16_a_save_that_was_applied_unanswered_is_recognised(storage, proxy, fault):
    """The retry finds its own item at the place, and that is success."""
    await storage.save_chat_message(*IDS, user("first"))
    proxy.fail("PutItem", fault)
    (saved,) = await storage.save_chat_message(*IDS, user("second"))
    assert saved.position == 2
    assert await contents(storage) == ["first", "second"]


async def test_c16_a_save_that_timed_out_after_it_was_applied_is_recognised(
    make, proxy, loop_clock
):
    """The same when no answer comes in time."""
    config = Config(retries={"total_max_attempts": 1}, read_timeout=60)
    making = aioboto3.Session().client(
        "dynamodb", endpoint_url=proxy.url, region_name="eu-central-1", config=config
    )
    async with making as client:  # on this loop, whose clock is set forward
        storage = make(direct=True, client=client, endpoint_url=None, timeout=240)
        await storage.save_chat_message(*IDS, user("first"))
        proxy.fail("PutItem", applies_then_hangs)
        saving = storage.save_chat_message(*IDS, user("second"))
        (saved,) = await loop_clock.cut_short(saving, proxy.hanging.wait(), 60)
        assert saved.position == 2
        assert proxy.counted()["PutItem"] == 3
        assert await contents(storage) == ["first", "second"]


async def test_c16_a_batch_whose_fate_is_unknown_can_be_saved_again(make, proxy, impatient):
    """``stored`` is None; the same save finds out what happened."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    batch = [user(str(number)) for number in range(100)]
    proxy.fail("PutItem", *[applies_then_cuts] * 99)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_messages(*IDS, batch)
    assert caught.value.stored is None
    proxy._faults.clear()
    saved = await storage.save_chat_messages(*IDS, batch)
    assert [message.position for message in saved] == list(range(2, 102))
    assert len(await contents(storage)) == 101


async def test_c106_parts_of_an_item_whose_fate_is_unknown_are_kept(make, proxy, impatient):
    """The item may show: without its parts the message would be lost."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    message = large()
    proxy.fail("PutItem", *[applies_then_cuts] * 99)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_message(*IDS, message)
    assert caught.value.stored is None
    proxy._faults.clear()
    assert await contents(make(direct=True)) == ["first", message.content]


async def test_parts_are_kept_when_nobody_can_tell_whose_item_is_there(make, proxy, impatient):
    """The put was applied unanswered, and looking for its token fails: its fate is unknown."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    message = large()
    proxy.fail("PutItem", applies_then_cuts)
    proxy.fail("GetItem", *[throttles] * 99)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_message(*IDS, message)
    assert caught.value.stored is None
    proxy._faults.clear()
    assert await contents(make(direct=True)) == ["first", message.content]


async def test_an_unanswered_save_is_recognised_when_the_log_has_moved_on(storage, proxy, make):
    """Also when others have appended more ids since than an item knows."""
    other, saved_all = make(direct=True), asyncio.Event()

    async def others():
        for number in range(70):
            await other.save_chat_message(*IDS, user(f"other {number}"))
        saved_all.set()

    proxy.fail("PutItem", applies_then_cuts_after(others))
    (saved,) = await storage.save_chat_message(*IDS, user("mine"))
    assert saved.position == 1
    await saved_all.wait()  # on a busy machine the client may have given up before
    assert (await contents(storage)).count("mine") == 1
    assert len(await contents(storage)) == 71


async def test_a_place_that_another_writer_took_is_no_success(storage, proxy, make):
    """A refusal after a request that was lost may mean another's item."""
    other = make(direct=True)

    async def overtake():
        await other.save_chat_message(*IDS, user("other"))

    proxy.fail("PutItem", cuts, first(overtake))
    (saved,) = await storage.save_chat_message(*IDS, user("mine"))
    assert saved.position == 2
    assert await contents(storage) == ["other", "mine"]


async def test_losing_a_race_costs_a_look_and_another_try(storage, proxy, make):
    """Two more requests, no more."""
    await storage.save_chat_message(*IDS, user("first"))
    other = make(direct=True)

    async def overtake():
        await other.save_chat_message(*IDS, user("other"))

    proxy.counted()
    proxy.fail("PutItem", first(overtake))
    await storage.save_chat_message(*IDS, user("mine"))
    assert proxy.counted() == {"PutItem": 2, "Query": 1}
    assert await contents(storage) == ["first", "other", "mine"]


async def test_a_writer_that_loses_every_race_says_so(make, proxy, dynamodb_table, impatient):
    """The race is bounded by the store's time limit."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    proxy.fail("PutItem", *[refuses("ConditionalCheckFailedException")] * 200)
    with pytest.raises(StorageUnavailableError, match="other writers") as caught:
        await storage.save_chat_message(*IDS, user("mine"))
    assert caught.value.stored is False


async def test_unprocessed_parts_are_sent_again(storage, proxy):
    """UnprocessedItems is no success."""
    proxy.fail("BatchWriteItem", *[leaves_the_last_unprocessed] * 3)
    await storage.save_chat_message(*IDS, message := large())
    assert await contents(storage) == [message.content]


async def test_parts_are_written_before_the_item_that_shows_them(storage, proxy, make):
    """A reader that sees the item finds all of its parts."""
    other, seen = make(direct=True), []

    async def look():
        seen.append(await parts(other))

    proxy.fail("PutItem", first(look))
    await storage.save_chat_message(*IDS, large())
    assert len(seen[0]) > 1
    assert seen == [await parts(other)]


async def test_parts_that_stay_unprocessed_end_as_unavailable(make, proxy, impatient):
    """Nothing shows, nothing is left, and the next save is right."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    one_by_one = [leaves_the_last_unprocessed] * 60
    proxy.fail("BatchWriteItem", *one_by_one)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_message(*IDS, large())
    assert caught.value.stored is False
    proxy._faults.clear()
    await storage.save_chat_message(*IDS, user("second"))
    assert await contents(storage) == ["first", "second"]


async def test_parts_of_unknown_fate_are_no_message_of_unknown_fate(make, proxy, impatient):
    """Parts show only with their item: the error says that nothing was stored."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    proxy.fail("BatchWriteItem", *[applies_then_cuts] * 99)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_message(*IDS, large())
    assert caught.value.stored is False


async def test_a_batch_that_is_processed_bit_by_bit_is_not_given_up(make, proxy, impatient):
    """The time limit begins again with each request that is processed."""
    storage = make()
    for number in range(12):
        await storage.save_chat_message(*IDS, user(f"secret {number}"))
    proxy.fail("BatchWriteItem", *[leaves_all_but_the_first_unprocessed] * 11)
    assert await storage.delete_chat(*IDS) == 12
    assert not any("text" in item for item in await table_items(storage))


async def test_empty_pages_are_followed(storage, proxy, make):
    """A page without items may have another after it."""
    await storage.save_chat_messages(*IDS, [user("1"), user("2")])
    for read in (
        storage.fetch_chat(*IDS),
        storage.fetch_chat(*IDS, 1),
        storage.fetch_chat_since(*IDS, 1),
        storage.fetch_all_chats(*IDS[:2]),
    ):
        proxy.fail("Query", answers_an_empty_page)
        assert [message.content for message in await read][-1] == "2"
    proxy.fail("Query", answers_an_empty_page)
    assert [info.last async for info in storage.list_chats("user")] == [2]
    other = make()
    await other.fetch_chat("user", "session", "nobody")
    proxy.fail("Query", answers_an_empty_page)
    (saved,) = await other.save_chat_message(*IDS, user("3"))
    assert saved.position == 3


async def test_a_read_that_a_delete_overtakes_shows_no_damage(storage, proxy, make):
    """The parts went with their message: the floor is read again."""
    other = make(direct=True)
    await other.save_chat_message(*IDS, large())

    async def delete():
        await other.delete_chat(*IDS)
        await other.save_chat_message(*IDS, user("after"))

    proxy.fail("Query", first(no_action), first(delete))
    assert [entry.content async for entry in storage.iter_log(*IDS)] == ["after"]


async def no_action():
    """Let one request pass."""


async def test_a_trim_that_a_delete_overtakes_writes_no_text_back(storage, proxy, make):
    """Only an item that still holds entries is rewritten with those that live."""
    await storage.save_chat_messages(*IDS, [user(f"secret {n}") for n in range(5)])
    other = make(direct=True)

    async def delete():
        await other.delete_chat(*IDS)

    proxy.fail("PutItem", first(no_action), first(delete))
    await storage.trim_chat(*IDS, 2)
    assert await contents(other) == []
    assert not any("text" in item for item in await table_items(other))


async def test_a_trim_that_a_deeper_one_overtakes_writes_no_text_back(storage, proxy, make):
    """An item is never rewritten with more than it holds."""
    await storage.save_chat_messages(*IDS, [user(f"secret {n}") for n in range(5)])
    other = make(direct=True)

    async def trim():
        await other.trim_chat(*IDS, 1)

    proxy.fail("PutItem", first(no_action), first(trim))
    await storage.trim_chat(*IDS, 3)
    assert await contents(other) == ["secret 4"]
    assert "secret 3" not in str(await table_items(other))


async def test_a_purge_that_fails_half_way_keeps_the_floor(make, proxy, impatient, clock):
    """No position is used again before the whole chat is gone."""
    storage = make(clock=clock)
    for number in range(3):
        await storage.save_chat_message(*IDS, user(str(number)))
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)
    proxy.fail("BatchWriteItem", leaves_all_but_the_last_unprocessed, *[throttles] * 100)
    with pytest.raises(StorageUnavailableError):
        await storage.purge(timedelta(0))
    proxy._faults.clear()
    (saved,) = await storage.save_chat_message(*IDS, user("new"))
    assert saved.position == 4
    assert [entry async for entry in storage.iter_log(*IDS)] == [saved]


MOMENTS = [*(("Query", n) for n in range(1, 5)), ("BatchWriteItem", 0)]


@pytest.mark.parametrize(
    "message",
    [user("small"), pytest.param(large(), marks=pytest.mark.matrix)],
    ids=["small", "large"],
)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_save_during_a_purge_is_kept(proxy, make, clock, moment, message):
    """Only what was there when the chat was seen to be dead is removed."""
    operation, passing = moment
    storage, other = make(clock=clock), make(direct=True, clock=clock)
    await storage.save_chat_message(*IDS, user("old"))
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)

    async def save():
        await other.save_chat_message(*IDS, message)

    proxy.fail(operation, *[first(no_action)] * passing, first(save))
    await storage.purge(timedelta(0))
    assert not proxy._faults[operation]  # it was saved in the middle
    assert await contents(other) == [message.content]
    assert not [note async for note in other.iter_log(*IDS) if note.id.startswith("corrupted")]


@pytest.mark.parametrize("message", [user("late"), large()], ids=["small", "large"])
@pytest.mark.parametrize("since", [(), ("1",), ("1", "2")], ids=len)
async def test_a_save_in_flight_while_its_chat_is_purged_hides_nothing(
    proxy, make, clock, since, message
):
    """What is saved to the chat once it has been removed would lie below the late item's floor."""
    storage, other = make(clock=clock), make(direct=True, clock=clock)
    await storage.save_chat_message(*IDS, user("old"))
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)

    async def purge():
        assert await other.purge(timedelta(0)) == 1
        for text in since:  # the second one has the key that the floor had
            await other.save_chat_message(*IDS, user(text))

    proxy.fail("PutItem", first(purge))
    (saved,) = await storage.save_chat_message(*IDS, message)
    expected = [*since, message.content]
    assert saved.position == len(expected)
    assert await contents(other) == expected
    assert await other.delete_chat(*IDS) == len(expected)
    assert await parts(other) == []


@pytest.mark.parametrize("texts", [(), ("2",)], ids=len)
async def test_a_trim_of_another_writer_is_no_purge(proxy, make, clock, texts):
    """It removes what lay below the floor, also what a save in flight knew as the newest item."""
    storage, other = make(clock=clock), make(direct=True, clock=clock)
    await storage.save_chat_message(*IDS, user("old"))
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)

    async def trim():
        for text in texts:
            await other.save_chat_message(*IDS, user(text))
        assert await other.trim_chat(*IDS, keep=5) == 0

    proxy.fail("GetItem", first(trim))  # the save has put its item, and looks at the one below
    await storage.save_chat_message(*IDS, user("1"))
    await other.save_chat_message(*IDS, user("3"))
    assert await contents(storage) == ["1", *texts, "3"]
    assert not [note async for note in other.iter_log(*IDS) if note.id.startswith("corrupted")]


async def test_a_repeated_save_relies_on_no_item_that_is_taken_back(proxy, make, clock):
    """It has only read it: the save in flight that put it notices that the chat was purged."""
    storage, other = make(clock=clock), make(direct=True, clock=clock)
    await storage.save_chat_message(*IDS, user("old"))
    await storage.delete_chat(*IDS)
    clock.advance(hours=1)
    message = user("1", id="one")

    async def purge():
        assert await other.purge(timedelta(0)) == 1

    async def repeat():
        await other.save_chat_message(*IDS, message)

    proxy.fail("PutItem", first(purge))
    proxy.fail("GetItem", first(repeat))
    await storage.save_chat_message(*IDS, message)
    await other.save_chat_message(*IDS, user("2"))
    assert await contents(storage) == ["1", "2"]


async def test_closing_waits_for_a_purge_under_way(make, proxy, clock):
    """It takes a turn for each chat: none of them is refused."""
    storage = make(clock=clock)
    for agent in ("a", "b", "c"):
        await storage.save_chat_message("user", "session", agent, user("old"))
        await storage.delete_chat("user", "session", agent)
    clock.advance(hours=1)
    closing = []

    async def close():
        closing.append(asyncio.ensure_future(storage.aclose()))

    proxy.fail("BatchWriteItem", first(close))
    assert await storage.purge(timedelta(0)) == 3
    await closing[0]


async def test_c22_a_save_cancelled_while_its_item_is_put_ends_when_it_is_there(storage, proxy):
    """Nothing is in flight when the cancellation is raised."""

    async def cancel():
        saving.cancel()

    proxy.fail("PutItem", first(cancel))
    saving = asyncio.ensure_future(storage.save_chat_message(*IDS, user()))
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert await contents(storage) == ["hello"]


async def test_parts_of_a_refused_append_are_removed(make, proxy, impatient):
    """What was written for an item that never came is taken away."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    proxy.fail("PutItem", *[throttles] * 100)
    with pytest.raises(StorageUnavailableError):
        await storage.save_chat_message(*IDS, large())
    assert await parts(storage) == []


async def test_parts_of_an_append_that_lost_a_race_are_removed(storage, proxy, make):
    """Only the parts of the item that shows are there."""
    other = make(direct=True)

    async def overtake():
        await other.save_chat_message(*IDS, user("other"))

    proxy.fail("PutItem", first(overtake))
    await storage.save_chat_message(*IDS, message := large())
    assert await contents(storage) == ["other", message.content]
    tokens = {item["sk"]["B"][-12:-4] for item in await parts(storage)}
    assert len(tokens) == 1


async def test_a_trim_that_was_applied_unanswered_is_recognised(storage, proxy):
    """The floor is raised once and the count is right."""
    await storage.save_chat_messages(*IDS, [user(str(n)) for n in range(5)])
    proxy.fail("PutItem", applies_then_cuts)
    assert await storage.trim_chat(*IDS, 2) == 3
    assert await contents(storage) == ["3", "4"]


async def test_a_removal_that_fails_is_told_and_can_be_resumed(make, proxy, impatient):
    """Deleted text is out of sight at once, and out of the table when the delete succeeds."""
    storage = make()
    for number in range(3):
        await storage.save_chat_message(*IDS, user(f"secret {number}"))
    proxy.fail("BatchWriteItem", *[throttles] * 100)
    with pytest.raises(StorageUnavailableError):
        await storage.delete_chat(*IDS)
    assert await contents(storage) == []
    proxy._faults.clear()
    assert await storage.delete_chat(*IDS) == 0
    assert not any("text" in item for item in await table_items(storage))


async def test_a_service_that_is_not_there_is_unavailable(
    dynamodb_table, aws_credentials, few_attempts
):
    """Nothing listens: nothing was stored."""
    url = "http://127.0.0.1:9"
    async with DynamoDbChatStorage(dynamodb_table, endpoint_url=url) as storage:
        with pytest.raises(StorageUnavailableError) as caught:
            await storage.save_chat_message(*IDS, user())
    assert caught.value.stored is False


async def test_a_missing_table_says_how_to_make_one(dynamodb_endpoint, dynamodb_table):
    """The error names create_table=True."""
    store = DynamoDbChatStorage(dynamodb_table, endpoint_url=dynamodb_endpoint)
    async with store as storage:
        with pytest.raises(StorageUnavailableError, match="create_table=True") as caught:
            await storage.save_chat_message(*IDS, user())
    assert caught.value.stored is False


@pytest.mark.parametrize(
    ("code", "advice"),
    [("AccessDeniedException", "allow dynamodb:"), ("UnrecognizedClientException", "credentials")],
)
async def test_a_refusal_for_good_is_not_tried_again(storage, proxy, code, advice):
    """The error says what to check."""
    proxy.fail("Query", refuses(code))
    with pytest.raises(StorageUnavailableError, match=advice):
        await storage.save_chat_message(*IDS, user())
    assert proxy.counted() == {"Query": 1}


async def test_a_refused_request_is_no_outage(storage, proxy):
    """A table with other keys refuses requests as invalid."""
    proxy.fail("Query", refuses("ValidationException"))
    with pytest.raises(InvalidRequestError, match="'sk'"):
        await storage.fetch_chat(*IDS)


async def test_each_save_of_a_group_gets_the_error(make, proxy, impatient):
    """Saves that shared an item that failed all fail, each for itself."""
    storage = make()
    await storage.save_chat_message(*IDS, user("first"))
    proxy.fail("PutItem", *[throttles] * 200)
    saves = [storage.save_chat_message(*IDS, user(str(n))) for n in range(5)]
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert all(isinstance(outcome, StorageUnavailableError) for outcome in outcomes)
    proxy._faults.clear()
    assert await contents(storage) == ["first"]


async def test_retries_wait_for_random_times(storage, proxy, monkeypatch):
    """Full jitter: from nothing up to a ceiling that doubles."""
    ranges = []
    monkeypatch.setattr(random, "uniform", lambda low, high: ranges.append((low, high)) or 0)
    proxy.fail("PutItem", *[throttles] * 4)
    await storage.save_chat_message(*IDS, user())
    assert ranges == [(0, 0.02), (0, 0.04), (0, 0.08), (0, 0.16)]
