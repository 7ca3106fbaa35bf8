"""The disk is full, read-only or gone: typed errors, and what was saved stays (C26)."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from file_support import IDS, KEY, fetched, log_of, parsed_lines, problems, run, saved

from agent_memory import (
    ChatKey,
    ConversationMessage,
    FileChatStorage,
    StorageUnavailableError,
)
from agent_memory.errors import CorruptedRecordError
from agent_memory.storage.file import disk as file_disk
from agent_memory.storage.file import trimming as file_trimming
from agent_memory.storage.file.directory import paths_of
from agent_memory.storage.file.lock import ChatLock, nobody_writes
from agent_memory.testing.contract.contract_base import record_at


def user(content, **fields):
    return ConversationMessage("user", content, **fields)


DESCRIPTORS = Path("/proc/self/fd")


def _fails(command):
    return subprocess.run(command, check=False, capture_output=True).returncode != 0


def descriptors():
    """How many descriptors are open."""
    if not DESCRIPTORS.exists():
        pytest.skip("descriptors cannot be counted here")
    return len(list(DESCRIPTORS.iterdir()))


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 256 KB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(place)]
    if shutil.which("mount") is None or _fails(command):
        pytest.skip("this user may not mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_c26_a_full_disk_refuses_a_save_and_keeps_what_was_saved(full_disk):
    """Nothing half-written, no lock left, and the next save that fits works."""
    async with FileChatStorage(full_disk) as storage:
        await storage.save_chat_message(*IDS, user("before"))
        size = log_of(full_disk).stat().st_size
        with pytest.raises(StorageUnavailableError, match="No space left") as caught:
            await storage.save_chat_messages(*IDS, [user("x" * 100_000) for _ in range(4)])
        assert (caught.value.key, caught.value.stored) == (KEY, False)
        assert isinstance(caught.value.__cause__, OSError)
        assert log_of(full_disk).stat().st_size == size
        (stored,) = await storage.save_chat_message(*IDS, user("after"))
        assert stored.position == 2
    assert [m.content for m in await fetched(full_disk)] == ["before", "after"]
    assert await problems(full_disk) == []


async def test_c26_a_new_chat_that_does_not_fit_leaves_no_file(full_disk):
    """Its first save fails; there is nothing to be listed or purged."""
    async with FileChatStorage(full_disk) as storage:
        with pytest.raises(StorageUnavailableError):
            await storage.save_chat_message(*IDS, user("x" * 400_000))
        assert [info async for info in storage.list_chats()] == []
    assert list(full_disk.rglob("*.jsonl")) == []


async def test_c26_a_trim_without_room_for_the_new_file_changes_nothing(full_disk):
    """And removes what it had written of it."""
    async with FileChatStorage(full_disk) as storage:
        await storage.save_chat_messages(*IDS, [user("x" * 50_000) for _ in range(4)])
        with pytest.raises(StorageUnavailableError, match="trimming"):
            await storage.trim_chat(*IDS, 3)
        assert len(await storage.fetch_chat(*IDS)) == 4
        assert await storage.delete_chat(*IDS) == 4
    assert [path.name for path in full_disk.rglob("*.*")] == ["agent.jsonl"]


LIMITED = """
import asyncio, json, resource, sys
from agent_memory import ConversationMessage, FileChatStorage, StorageUnavailableError

async def main():
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    saved, refused = [], 0
    async with FileChatStorage(sys.argv[1]) as storage:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        for number in range(100):
            batch = [ConversationMessage("user", f"{number} {part}" * 20) for part in range(3)]
            try:
                await storage.save_chat_messages("user", "session", "agent", batch)
                saved += [message.content for message in batch]
            except StorageUnavailableError as error:
                assert error.stored is False
                refused += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        last = ConversationMessage("user", "last")
        await storage.save_chat_message("user", "session", "agent", last)
    print(json.dumps([saved + ["last"], refused]))

asyncio.run(main())
"""


def test_c26_a_file_that_may_not_grow_keeps_whole_batches(tmp_path):
    """The system takes a part of a write and then no more: the part is taken back."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    saved_contents, refused = json.loads(ended.stdout)
    assert refused > 10
    assert [m.content for m in run(fetched(tmp_path))] == saved_contents
    assert [line["position"] for line in parsed_lines(log_of(tmp_path))[1:]] == [
        *range(1, len(saved_contents) + 1)
    ]


async def test_c26_a_save_that_lacked_room_for_its_last_byte_is_not_shown(tmp_path, monkeypatch):
    """A last line that parses counts as whole, so that what was refused must be taken back."""

    def lacks_room(file, data):
        file.write(data[:-1])
        raise OSError(28, "No space left on device")

    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("before"))
        with monkeypatch.context() as full:
            full.setattr(file_disk, "write_all", lacks_room)
            with pytest.raises(StorageUnavailableError) as caught:
                await storage.save_chat_message(*IDS, user("refused"))
        assert caught.value.stored is False
        assert [m.content for m in await storage.fetch_chat(*IDS)] == ["before"]
    assert [m.content for m in await fetched(tmp_path)] == ["before"]


async def test_c26_a_directory_that_became_a_file_is_unavailable(tmp_path):
    """Every call says so, with the system's error as the cause."""
    root = tmp_path / "chats"
    async with FileChatStorage(root) as storage:
        await storage.save_chat_message(*IDS, user("hello"))
        shutil.rmtree(root)
        root.write_text("")
        for call in (
            storage.save_chat_message(*IDS, user("more")),
            storage.fetch_chat(*IDS),
            storage.delete_chat(*IDS),
            storage.fetch_all_chats(*IDS[:2]),
            storage.summaries().load_summary(KEY),
            anext(storage.list_chats()),
        ):
            with pytest.raises(StorageUnavailableError) as caught:
                await call
            assert isinstance(caught.value.__cause__, NotADirectoryError)


def test_c26_a_read_only_disk_is_unavailable(full_disk):
    """Nothing can be saved, trimmed or deleted; reading goes on."""

    async def check():
        async with FileChatStorage(full_disk) as storage:
            for call in (
                storage.save_chat_message(*IDS, user("more")),
                storage.save_chat_message("user", "session", "new", user("more")),
                storage.trim_chat(*IDS, 0),
            ):
                with pytest.raises(StorageUnavailableError, match="Read-only file system"):
                    await call
            assert len(await storage.fetch_chat(*IDS)) == 1
        assert await problems(full_disk) == []

    run(saved(full_disk, [user("hello")]))
    subprocess.run(["mount", "-o", "remount,ro", str(full_disk)], check=True)
    run(check())


async def test_a_failed_sync_leaves_open_whether_the_messages_are_stored(tmp_path, monkeypatch):
    """Saving them again tells: each is stored once."""
    messages = [user("one"), user("two")]

    def fail(descriptor, durability):
        raise OSError(5, "Input/output error")

    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("before"))
        with monkeypatch.context() as broken:
            broken.setattr(file_disk, "sync_file", fail)
            with pytest.raises(StorageUnavailableError) as caught:
                await storage.save_chat_messages(*IDS, messages)
        assert caught.value.stored is None
        assert isinstance(caught.value.__cause__, OSError)
        await storage.save_chat_messages(*IDS, messages)
        assert [m.content for m in await storage.fetch_chat(*IDS)] == ["before", "one", "two"]


async def test_c106_what_could_not_be_synced_is_taken_back(tmp_path, monkeypatch):
    """The kernel may have dropped the bytes: neither readers nor the next save build on them."""

    def fail(descriptor, durability):
        raise OSError(5, "Input/output error")

    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("before"))
        size = log_of(tmp_path).stat().st_size
        with monkeypatch.context() as broken:
            broken.setattr(file_disk, "sync_file", fail)
            with pytest.raises(StorageUnavailableError):
                await storage.save_chat_messages(*IDS, [user("one"), user("two")])
        assert log_of(tmp_path).stat().st_size == size
        assert [m.content for m in await fetched(tmp_path)] == ["before"]
        (other,) = await storage.save_chat_message(*IDS, user("other"))
        assert other.position == 2
    assert [m.content for m in await fetched(tmp_path)] == ["before", "other"]


async def test_c106_a_record_that_could_not_be_synced_is_taken_back(tmp_path, monkeypatch):
    """So it is with summary records: the chain goes on from the one before."""

    def fail(descriptor, durability):
        raise OSError(5, "Input/output error")

    async with FileChatStorage(tmp_path) as storage:
        stored = await storage.save_chat_messages(*IDS, [user(f"{n}") for n in range(4)])
        records, first, second = storage.summaries(), record_at(stored[:2]), record_at(stored)
        await records.save_summary(KEY, first, replaces=None)
        with monkeypatch.context() as broken:
            broken.setattr(file_disk, "sync_file", fail)
            with pytest.raises(StorageUnavailableError):
                await records.save_summary(KEY, second, replaces=first.id)
        assert await records.list_summaries(KEY) == [first]


@pytest.mark.parametrize("kind", [fcntl.LOCK_EX, fcntl.LOCK_SH])
async def test_a_lock_that_is_never_given_back_is_not_waited_for_without_end(tmp_path, kind):
    """The error says whose lock it is; a save shares it with nobody, reading needs none."""
    await saved(tmp_path, [user("hello")])
    with log_of(tmp_path).open("rb") as held:
        fcntl.flock(held, kind)
        async with FileChatStorage(tmp_path, lock_timeout=0.01) as storage:
            with pytest.raises(StorageUnavailableError, match="is held by another process"):
                await storage.save_chat_message(*IDS, user("more"))
            assert len(await storage.fetch_chat(*IDS)) == 1
            fcntl.flock(held, fcntl.LOCK_UN)
            await storage.save_chat_message(*IDS, user("more"))


async def test_a_writer_that_waited_for_a_trim_writes_to_the_file_that_took_its_place(tmp_path):
    """The file that it waited for has no name any more: what it holds is lost."""
    await saved(tmp_path, [user("hello")])
    path, lock = log_of(tmp_path), ChatLock(timeout=60.0, durability="full")
    held = path.open("rb")
    fcntl.flock(held, fcntl.LOCK_EX)

    @contextmanager
    def replaced():
        shutil.copy(path, tmp_path / "trimmed")
        (tmp_path / "trimmed").replace(path)
        held.close()
        yield

    lock.waiting = replaced
    with lock.acquire(paths_of(tmp_path, KEY), KEY, create=True) as file:
        assert os.fstat(file.fileno()).st_ino == path.stat().st_ino


async def test_many_chats_at_once_do_not_wait_for_one_that_another_process_holds(tmp_path):
    """A thread takes several of them at a time; those it can have are stored and answered."""
    keys = [("user", "session", f"agent {number}") for number in range(60)]
    async with FileChatStorage(tmp_path) as storage:
        for ids in keys:
            await storage.save_chat_message(*ids, user("first"))
        path = paths_of(tmp_path, ChatKey(*keys[30])).log
        with open(path, "rb") as held:  # noqa: PTH123, ASYNC230 - a descriptor of its own
            fcntl.flock(held, fcntl.LOCK_EX)
            saves = [
                asyncio.ensure_future(storage.save_chat_message(*ids, user("second")))
                for ids in keys
            ]
            waiting = saves.pop(30)
            stored = await asyncio.gather(*saves)
            assert [message.position for (message,) in stored] == [2] * 59
            assert not waiting.done()
            fcntl.flock(held, fcntl.LOCK_UN)
        assert (await waiting)[0].position == 2


async def test_on_a_slow_disk_nobody_waits_for_the_chats_of_others(tmp_path, monkeypatch):
    """Of those that one thread takes, each is answered when its own bytes are there."""
    keys = [("user", "session", f"agent {number}") for number in range(6)]
    syncs, entered, go_on = [], threading.Semaphore(0), threading.Semaphore(0)
    real = os.fdatasync

    def sync(descriptor):
        syncs.append(descriptor)
        entered.release()
        assert go_on.acquire(timeout=60)
        real(descriptor)

    async with FileChatStorage(tmp_path) as storage:
        storage._queue._threads = 1
        for ids in keys:
            await storage.save_chat_message(*ids, user("first"))
        monkeypatch.setattr(os, "fdatasync", sync)
        first = asyncio.ensure_future(storage.save_chat_message(*keys[0], user("second")))
        await asyncio.to_thread(entered.acquire)  # the thread is busy; the others gather
        rest = [
            asyncio.ensure_future(storage.save_chat_message(*ids, user("second")))
            for ids in keys[1:]
        ]
        await asyncio.sleep(0)
        go_on.release()
        await first
        for number, save in enumerate(rest, start=1):
            await asyncio.to_thread(entered.acquire)
            assert [one.done() for one in rest].count(True) == number - 1
            go_on.release()
            assert (await save)[0].position == 2
    assert len(syncs) == 6


async def test_of_many_chats_at_once_one_that_fails_fails_alone(tmp_path):
    """Here a file that was put in another's place: every other save is stored."""
    keys = [("user", "session", f"agent {number}") for number in range(60)]
    async with FileChatStorage(tmp_path) as storage:
        for ids in keys:
            await storage.save_chat_message(*ids, user("first"))
        logs = [paths_of(tmp_path, ChatKey(*ids)).log for ids in keys]
        shutil.copy(logs[29], logs[30])
        saves = (storage.save_chat_message(*ids, user("second")) for ids in keys)
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        failed = outcomes.pop(30)
        assert isinstance(failed, CorruptedRecordError)
        assert [message.position for (message,) in outcomes] == [2] * 59
        for ids in keys[:30] + keys[31:]:
            assert [m.content for m in await storage.fetch_chat(*ids)] == ["first", "second"]


async def test_a_process_forked_meanwhile_does_not_keep_the_lock(tmp_path):
    """It has the file open as well, as a duplicated descriptor has."""
    await saved(tmp_path, [user("hello")])
    lock = ChatLock(timeout=1.0, durability="os")
    with lock.acquire(paths_of(tmp_path, KEY), KEY, create=True) as held:
        duplicate = os.dup(held.fileno())
    async with FileChatStorage(tmp_path, lock_timeout=1.0) as storage:
        await storage.save_chat_message(*IDS, user("more"))
    os.close(duplicate)


async def test_the_names_of_new_files_go_to_the_disk(tmp_path, monkeypatch):
    """The file's and those of the directories made for it, before the save returns."""
    synced = []
    real = os.fsync

    def sync(descriptor):
        synced.append((DESCRIPTORS / str(descriptor)).readlink())
        real(descriptor)

    assert descriptors() > 0
    monkeypatch.setattr(os, "fsync", sync)
    root = tmp_path / "chats"
    await saved(root, [user("hello")])
    session = log_of(root).parent
    assert {tmp_path, root, session.parent, session} <= set(synced)


async def test_a_known_repeat_is_on_the_disk_before_its_save_returns(tmp_path, monkeypatch):
    """Whoever wrote it may have died before the disk had it."""
    message, synced = user("hello"), []
    await saved(tmp_path, [message], durability="os")
    monkeypatch.setattr(os, "fdatasync", synced.append)
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, message)
        assert len(synced) == 1
        await storage.save_chat_message(*IDS, message)
    assert len(synced) == 1


async def test_nobody_writes_to_a_trimmed_file_before_its_name_is_on_the_disk(
    tmp_path, monkeypatch
):
    """A crash would bring the old file back, and lose what was appended to the new one."""
    free = []

    def sync(directory, durability):
        with log_of(tmp_path).open("rb") as file:
            free.append(nobody_writes(file.fileno()))

    await saved(tmp_path, [user("one"), user("two")])
    monkeypatch.setattr(file_trimming, "sync_directory", sync)
    async with FileChatStorage(tmp_path) as storage:
        await storage.trim_chat(*IDS, 1)
    assert free == [False]


class Order:
    """Notes in which order files are brought to the disk, removed and given their names."""

    def __init__(self, monkeypatch):
        self.steps = []
        for name in ("fdatasync", "fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._noting(name, getattr(os, name)))

    def _noting(self, name, real):
        def note(first, *rest):
            path = (DESCRIPTORS / str(first)).readlink() if isinstance(first, int) else first
            self.steps.append((name.removeprefix("fdata").removeprefix("f"), Path(path).name))
            return real(first, *rest)

        return note


async def test_c106_a_trimmed_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Else a crash would leave an empty file where the messages that are kept should be."""
    assert descriptors() > 0
    await saved(tmp_path, [user("one"), user("two")])
    async with FileChatStorage(tmp_path) as storage:
        order = Order(monkeypatch)
        await storage.trim_chat(*IDS, 1)
    new, session = log_of(tmp_path).name + ".tmp", log_of(tmp_path).parent.name
    assert order.steps[-3:] == [("sync", new), ("replace", new), ("sync", session)]


@pytest.mark.parametrize("keep", [0, 1])
async def test_c106_a_trim_removes_summaries_before_the_messages(tmp_path, monkeypatch, keep):
    """And has that on the disk: after a crash nothing tells of what is gone."""
    assert descriptors() > 0
    async with FileChatStorage(tmp_path) as storage:
        stored = await storage.save_chat_messages(*IDS, [user("one"), user("two")])
        await storage.summaries().save_summary(KEY, record_at(stored), replaces=None)
        order = Order(monkeypatch)
        await storage.trim_chat(*IDS, keep)
    log, session = log_of(tmp_path), log_of(tmp_path).parent.name
    assert order.steps[:2] == [("unlink", "agent.summaries"), ("sync", session)]
    assert ("replace", log.name + ".tmp") in order.steps[2:]


async def test_c106_a_trim_that_fails_half_way_has_removed_the_summaries(tmp_path, monkeypatch):
    """The messages are as they were; what told of those to be erased is gone already."""

    def fail(*_args):
        raise OSError(5, "Input/output error")

    async with FileChatStorage(tmp_path) as storage:
        stored = await storage.save_chat_messages(*IDS, [user("one"), user("two")])
        await storage.summaries().save_summary(KEY, record_at(stored), replaces=None)
        with monkeypatch.context() as broken:
            broken.setattr(os, "replace", fail)
            with pytest.raises(StorageUnavailableError):
                await storage.trim_chat(*IDS, 1)
        assert [m.content for m in await storage.fetch_chat(*IDS)] == ["one", "two"]
        assert await storage.summaries().list_summaries(KEY) == []


async def test_with_durability_os_nothing_waits_for_the_disk(tmp_path, monkeypatch):
    """No sync at all: not of files, not of directories."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, None)
    await saved(tmp_path, [user("hello")], durability="os")
    async with FileChatStorage(tmp_path, durability="os") as storage:
        assert await storage.trim_chat(*IDS, 0) == 1


async def test_chats_are_brought_to_the_disk_side_by_side(tmp_path, monkeypatch):
    """One chat's wait for the disk is not another's."""
    both = threading.Barrier(2, timeout=30)
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message("user", "one", "agent", user("first"))
        await storage.save_chat_message("user", "two", "agent", user("first"))
        real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", lambda fd: (both.wait(), real(fd)))
        async with asyncio.TaskGroup() as group:
            for session in ("one", "two"):
                group.create_task(
                    storage.save_chat_message("user", session, "agent", user("second"))
                )


async def test_no_descriptor_stays_open_between_calls(tmp_path):
    """However many chats a store has written to and read."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("hello"))
        before = descriptors()
        for number in range(50):
            await storage.save_chat_message("user", str(number), "agent", user("hello"))
            await storage.fetch_chat("user", str(number), "agent")
        assert descriptors() == before
