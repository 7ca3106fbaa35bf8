"""Rows deleted behind a store's back hide nothing of what is left."""

from __future__ import annotations

import pytest
from sql_tools import IDS, change, contents, user

from agent_memory import ChatKey, SqlChatStorage
from agent_memory.audit.log_pages import pages

LEFT = [f"{n}" for n in (*range(1, 401), *range(901, 1_201))]


@pytest.fixture
async def holed(sql_url):
    """A chat of 1,200 messages, of which positions 401 to 900 were deleted."""
    async with SqlChatStorage(sql_url) as storage:
        await storage.save_chat_messages(*IDS, [user(f"{n}") for n in range(1, 1_201)])
        await change(
            storage, "DELETE FROM agent_memory_entries WHERE position BETWEEN 401 AND 900"
        )
        yield storage


async def test_streams_go_on_past_a_hole(holed):
    """One of several pages, in every stream, also one that begins inside the hole."""
    assert contents([entry async for entry in holed.iter_log(*IDS)]) == LEFT
    assert contents([message async for message in holed.iter_chat(*IDS)]) == LEFT
    assert contents([message async for message in holed.iter_all_chats(*IDS[:2])]) == LEFT
    assert contents([entry async for entry in holed.iter_log(*IDS, after=450)]) == LEFT[400:]


async def test_an_auditor_reads_past_a_hole(holed):
    """Whether or not it is known where the log ends."""
    for last in (None, 1_200):
        read = [part async for part in pages(holed, ChatKey(*IDS), last=last)]
        assert contents([entry for part in read for entry in part.entries]) == LEFT


async def test_the_newest_messages_are_found_before_a_hole(holed):
    """They are counted, not computed from positions; few of them and many."""
    assert contents(await holed.fetch_chat(*IDS, 500)) == LEFT[-500:]
    await change(holed, "DELETE FROM agent_memory_entries WHERE position > 900")
    for count in (20, 300):
        assert contents(await holed.fetch_chat(*IDS, count)) == LEFT[400 - count : 400]
    assert (await holed._read(ChatKey(*IDS), after=390, last=5)).entries[0].position == 396


async def test_an_end_that_is_missing_ends_the_streams(holed):
    """And what is saved after it is read after it."""
    await change(holed, "DELETE FROM agent_memory_entries WHERE position > 400")
    assert contents([entry async for entry in holed.iter_log(*IDS)]) == LEFT[:400]
    await holed.save_chat_message(*IDS, user("more"))
    assert contents([entry async for entry in holed.iter_log(*IDS)]) == [*LEFT[:400], "more"]
