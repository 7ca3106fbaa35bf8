"""Long reads go through aiofiles block by block, and find what a read in one step would find."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from file_support import IDS, KEY, entries, log_of, make_unreadable, problems, saved

from agent_memory import (
    ConversationMessage,
    FileChatStorage,
    Note,
    StorageUnavailableError,
)
from agent_memory.errors import StorageClosedError
from agent_memory.storage.file import reader as file_reader
from agent_memory.storage.file import storage as file_storage
from agent_memory.storage.file.chat_log import BLOCK, ChangedError

SIZES = [10, 3000, 40, 200_000, 7, 900]


def long_batch(count=60):
    """Messages of very different lengths, some 2 MB together."""
    return [
        ConversationMessage("user", f"{n}" + "x" * SIZES[n % len(SIZES)]) for n in range(count)
    ]


@pytest.fixture
async def batch(tmp_path):
    """A chat that is much longer than one block."""
    messages = long_batch()
    await saved(tmp_path, messages, durability="os")
    assert log_of(tmp_path).stat().st_size > 5 * BLOCK
    return messages


async def test_a_long_log_is_read_as_it_was_saved(tmp_path, batch):
    """As a whole, from a position on, page by page, and with those of other agents."""
    await saved(tmp_path, long_batch(2), key=KEY.__class__("user", "session", "other"))
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.fetch_chat(*IDS) == batch
        assert await storage.fetch_chat_since(*IDS, 7) == batch[7:]
        assert (await storage._read(KEY, after=3, first=9)).messages == batch[3:12]
        assert [message async for message in storage.iter_chat(*IDS)] == batch
        both = await storage.fetch_all_chats("user", "session")
        assert [m for m in both if m.agent_id == "agent"] == batch
        assert len(both) == len(batch) + 2


async def test_a_long_read_without_aiofiles_finds_the_same(tmp_path, batch, monkeypatch):
    """The extra is not needed to read a file."""
    monkeypatch.setattr(file_storage, "find_spec", lambda _name: None)
    monkeypatch.setattr(file_storage, "stream_log", None)
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.fetch_chat(*IDS) == batch


async def test_a_gap_in_a_long_log_is_told_once(tmp_path, batch, caplog):
    """At its place, as in a short one."""
    make_unreadable(log_of(tmp_path), 30)
    async with FileChatStorage(tmp_path) as storage:
        for _ in range(2):
            assert await storage.fetch_chat(*IDS) == batch[:29] + batch[30:]
    gap = (await entries(tmp_path))[29]
    assert isinstance(gap, Note)
    assert (gap.kind, gap.position) == ("corrupted", 30)
    assert len([one for one in caplog.messages if "cannot be read" in one]) == 2  # two stores
    (problem,) = await problems(tmp_path)
    assert "line 31" in problem.location


async def test_the_newest_of_a_long_log_are_one_step(tmp_path, batch, monkeypatch):
    """However large they are."""
    monkeypatch.setattr(file_storage, "stream_log", None)
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.fetch_chat(*IDS, 20) == batch[-20:]


async def test_a_long_read_lets_others_have_their_turn(tmp_path, batch):
    """Here with a single thread: a short read that is asked for later ends earlier."""
    other = ("user", "session", "other")
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*other, long_batch(1))
        storage._readers.shutdown()
        storage._readers = ThreadPoolExecutor(1)
        long = asyncio.ensure_future(storage.fetch_chat(*IDS))
        await asyncio.sleep(0)
        assert len(await storage.fetch_chat(*other, 20)) == 1
        assert not long.done()
        assert await long == batch


async def test_bytes_that_change_while_a_long_log_is_read_are_not_called_damaged(
    tmp_path, batch, monkeypatch, caplog
):
    """It is read again."""
    real, parts = file_reader.LogPart.feed, []

    def feed(part, block):
        parts.append(part)
        real(part, b"#" + block[1:] if part is parts[0] else block)

    monkeypatch.setattr(file_reader.LogPart, "feed", feed)
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.fetch_chat(*IDS) == batch
    assert len(set(parts)) == 2
    assert caplog.messages == []


@pytest.mark.parametrize("times", [1, 100])
async def test_a_long_log_cut_while_it_is_read_is_read_again(tmp_path, batch, monkeypatch, times):
    """But not for ever."""
    real, cuts = file_reader.LogPart.feed, []

    def feed(part, block):
        if len(cuts) < times:
            cuts.append(part)
            raise ChangedError
        real(part, block)

    monkeypatch.setattr(file_reader.LogPart, "feed", feed)
    async with FileChatStorage(tmp_path) as storage:
        if times == 1:
            assert await storage.fetch_chat(*IDS) == batch
        else:
            with pytest.raises(StorageUnavailableError, match="changes while it is read"):
                await storage.fetch_chat(*IDS)


async def test_a_log_trimmed_while_it_is_read_is_read_as_it_was(tmp_path, batch, monkeypatch):
    """The file that was opened stays, whatever takes its name."""
    real, blocks = file_reader.LogPart.feed, []

    async with FileChatStorage(tmp_path) as storage, FileChatStorage(tmp_path) as trimming:

        def feed(part, block):
            blocks.append(block)
            if len(blocks) == 2:
                asyncio.run(trimming.trim_chat(*IDS, 1))
            real(part, block)

        monkeypatch.setattr(file_reader.LogPart, "feed", feed)
        assert await storage.fetch_chat(*IDS) == batch
        assert await storage.fetch_chat(*IDS) == batch[-1:]


async def test_a_store_closed_under_a_long_read_says_so(tmp_path, batch):
    """Or the read ends before."""
    storage = FileChatStorage(tmp_path)
    async with storage:
        reads = [asyncio.ensure_future(storage.fetch_chat(*IDS)) for _ in range(5)]
        await asyncio.sleep(0)
    for outcome in await asyncio.gather(*reads, return_exceptions=True):
        assert outcome == batch or isinstance(outcome, StorageClosedError)
