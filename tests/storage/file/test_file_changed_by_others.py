"""Files that somebody else replaces, edits or removes while a store has them open or in memory."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import threading
from pathlib import Path

import pytest
from file_support import IDS, KEY, fetched, log_of, parsed_lines, raw_lines, saved, users

from agent_memory import FileChatStorage
from agent_memory.storage.file import lock as file_lock
from agent_memory.testing.contract.contract_base import record_at


def contents(messages):
    return [message.content for message in messages]


def with_times_of(path, stat):
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


# ------------------------------------------------------ what is remembered is checked before use


def elsewhere(data):
    """The same bytes but for the position of the only message, which is 7."""
    return data.replace(b'"position":1,"batch_start":1', b'"position":7,"batch_start":7')


async def test_a_file_replaced_by_one_of_equal_size_and_time_is_read_again(tmp_path):
    """A restored backup: another inode is another file."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, users(1))
        path = log_of(tmp_path)
        before, copy = path.stat(), path.with_suffix(".copy")
        copy.write_bytes(elsewhere(path.read_bytes()))
        with_times_of(copy, before)
        copy.replace(path)
        assert path.stat().st_size == before.st_size
        (stored,) = await storage.save_chat_messages(*IDS, users(1, "after "))
    assert stored.position == 8


async def test_a_file_that_grew_without_a_newer_time_is_read_again(tmp_path):
    """Clocks tick slower than writers write."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, users(1))
        path = log_of(tmp_path)
        before = path.stat()
        await saved(tmp_path, users(1, "other "))
        with_times_of(path, before)
        (stored,) = await storage.save_chat_messages(*IDS, users(1, "after "))
    assert stored.position == 3
    assert [line["position"] for line in parsed_lines(path)[1:]] == [1, 2, 3]


async def test_a_file_edited_without_growing_is_read_again(tmp_path):
    """An editor that writes in place keeps inode and size."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, users(1))
        path = log_of(tmp_path)
        before, data = path.stat(), path.read_bytes()
        with path.open("r+b") as file:
            file.write(elsewhere(data))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
        assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
        (stored,) = await storage.save_chat_messages(*IDS, users(1, "after "))
    assert stored.position == 8


# --------------------------------------------------------------- removed while a save waits


async def test_a_file_removed_while_a_save_waits_for_its_lock_is_made_anew(tmp_path, monkeypatch):
    """As a purge by another process does: nothing is written to a file without a name."""
    refused, waits = [], threading.Event()
    real = file_lock.try_lock

    def try_lock(descriptor):
        taken = real(descriptor)
        if not taken:
            refused.append(descriptor)
            if len(refused) == 3:  # by now the file is open
                waits.set()
        return taken

    await saved(tmp_path, users(1, "purged "))
    monkeypatch.setattr(file_lock, "try_lock", try_lock)
    async with FileChatStorage(tmp_path) as storage:
        with log_of(tmp_path).open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            save = asyncio.ensure_future(storage.save_chat_messages(*IDS, users(1)))
            assert await asyncio.to_thread(waits.wait, 30)
            log_of(tmp_path).unlink()
        (stored,) = await asyncio.wait_for(save, 30)
    assert stored.position == 1
    assert contents(await fetched(tmp_path)) == ["message 1"]


# ------------------------------------------------------------------- what the disk was told


class Synced:
    """Notes which directories were brought to the disk."""

    def __init__(self, monkeypatch):
        self.names, real = [], os.fsync

        def sync(descriptor):
            self.names.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)  # noqa: PTH115
            real(descriptor)

        monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no names of descriptors here")
async def test_the_name_of_a_new_file_of_records_is_on_the_disk(tmp_path, monkeypatch):
    """So is its removal, when the records are forgotten."""
    async with FileChatStorage(tmp_path) as storage:
        stored = await storage.save_chat_messages(*IDS, users(2))
        synced = Synced(monkeypatch)
        assert await storage.summaries().save_summary(KEY, record_at(stored), replaces=None)
        assert "session" in synced.names
        synced.names.clear()
        assert await storage.summaries().forget_summaries(KEY) == 1
        assert "session" in synced.names


async def test_records_of_two_stores_are_swapped_one_at_a_time(tmp_path):
    """Each compares with what the file holds, not with what it remembers."""
    async with FileChatStorage(tmp_path) as one, FileChatStorage(tmp_path) as two:
        stored = await one.save_chat_messages(*IDS, users(3))
        first, second = record_at(stored[:1]), record_at(stored[:2])
        assert await one.summaries().save_summary(KEY, first, replaces=None)
        assert not await two.summaries().save_summary(KEY, second, replaces=None)
        assert await two.summaries().save_summary(KEY, second, replaces=first.id)
        assert not await one.summaries().save_summary(KEY, record_at(stored), replaces=first.id)
        assert await one.summaries().list_summaries(KEY) == [first, second]


# ------------------------------------------------------------------------ what a trim keeps


async def test_a_trim_keeps_when_the_chat_began_and_its_lines_as_they_were(tmp_path):
    """Bytes of the messages that stay, and all of the first line but floor and checksum."""
    await saved(tmp_path, users(2), users(3, "batch "))
    path = log_of(tmp_path)
    header, *before = parsed_lines(path)
    bytes_before = raw_lines(path)[-2:]
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.trim_chat(*IDS, 2) == 3
    after, *lines = parsed_lines(path)
    assert (after["created_at"], after["chat"]) == (header["created_at"], header["chat"])
    assert (header["floor"], after["floor"]) == (0, 3)
    assert lines == before[-2:]
    assert raw_lines(path)[-2:] == bytes_before


async def test_saves_and_trims_of_one_chat_are_done_in_the_order_asked_for(tmp_path):
    """A trim neither overtakes the saves before it nor touches those after it."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, users(1, "first "))
        calls = []
        for number in range(5):
            calls.append(storage._append(KEY, users(2, f"{number} ")))
            calls.append(storage._forget(KEY, 1))
        outcomes = await asyncio.gather(*map(asyncio.ensure_future, calls))
        assert outcomes[1::2] == [2] * 5
        assert contents(await storage.fetch_chat(*IDS)) == ["4 2"]


# -------------------------------------------------------------- positions are not used twice


async def test_a_position_legible_in_damaged_last_lines_is_not_used_twice(tmp_path):
    """Of lines lost before the damaged one nothing but that position tells."""
    await saved(tmp_path, *([message] for message in users(6)))
    path = log_of(tmp_path)
    *lines, last = raw_lines(path)
    damaged = re.sub(rb'"content":"message 6"', b'"content":###', last)
    path.write_bytes(b"".join(lines[:4]) + damaged)
    (before,) = {entry.position for entry in await fetched(tmp_path)} - {1, 2}
    assert before == 3
    await saved(tmp_path, users(1, "after "))
    assert [m.position for m in await fetched(tmp_path)] == [1, 2, 3, 7]
