"""What goes wrong in a thread that saves for many chats: nobody waits for ever, nothing tears."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import traceback
from contextlib import ExitStack
from pathlib import Path

import pytest
from file_support import IDS, fetched, log_of, parsed_lines, problems

from agent_memory import (
    ChatKey,
    ConversationMessage,
    FileChatStorage,
    StorageUnavailableError,
)
from agent_memory.storage._engine.append_plan import PendingSave
from agent_memory.storage.file import appender as file_appender
from agent_memory.storage.file.directory import paths_of


def user(content, **fields):
    return ConversationMessage("user", content, **fields)


def chats(count, name="agent"):
    return [("user", "session", f"{name} {number}") for number in range(count)]


def save(storage, ids, content="second"):
    return asyncio.ensure_future(storage.save_chat_message(*ids, user(content)))


async def outcomes_of(saves):
    return await asyncio.wait_for(asyncio.gather(*saves, return_exceptions=True), 30)


def writing_threads(storage):
    """How many threads of a store's queue are alive."""
    return sum(thread.name == storage._queue._name for thread in threading.enumerate())


class Once:
    """Raises an error at the first call that it is armed for, else calls the real function."""

    def __init__(self, real, error):
        self.real, self.error, self.armed = real, error, True

    def __call__(self, *args):
        if self.armed:
            self.armed = False
            raise self.error
        return self.real(*args)


async def test_new_chats_do_not_wait_for_one_that_another_process_holds(tmp_path):
    """Those that a thread cannot have at once are done one by one, by several threads."""
    old, new = chats(100), chats(40, "new")
    async with FileChatStorage(tmp_path) as storage:
        for ids in old:
            await storage.save_chat_message(*ids, user("first"))
        with open(paths_of(tmp_path, ChatKey(*old[50])).log, "rb") as held:  # noqa: PTH123, ASYNC230
            fcntl.flock(held, fcntl.LOCK_EX)
            saves = [save(storage, ids) for ids in [*old, *new]]
            waiting = saves.pop(50)
            assert not any(isinstance(one, Exception) for one in await outcomes_of(saves))
            assert not waiting.done()
            fcntl.flock(held, fcntl.LOCK_UN)
        assert (await waiting)[0].position == 2


async def test_two_chats_that_others_hold_do_not_add_up(tmp_path):
    """Each waits as long as its own lock is held."""
    keys = chats(30)
    async with FileChatStorage(tmp_path) as storage:
        for ids in keys:
            await storage.save_chat_message(*ids, user("first"))
        paths = [Path(paths_of(tmp_path, ChatKey(*ids)).log) for ids in keys[:2]]
        with paths[0].open("rb") as one, paths[1].open("rb") as other:
            fcntl.flock(one, fcntl.LOCK_EX)
            fcntl.flock(other, fcntl.LOCK_EX)
            saves = [save(storage, ids) for ids in keys]
            await outcomes_of(saves[2:])
            fcntl.flock(other, fcntl.LOCK_UN)
            assert (await asyncio.wait_for(saves[1], 30))[0].position == 2
            assert not saves[0].done()
            fcntl.flock(one, fcntl.LOCK_UN)
        assert (await saves[0])[0].position == 2


async def test_more_chats_than_threads_that_others_hold_keep_nobody_waiting(tmp_path):
    """A thread that waits for another process is stood in for."""
    held, free = chats(12, "held"), chats(12, "free")
    async with FileChatStorage(tmp_path) as storage:
        for ids in [*held, *free]:
            await storage.save_chat_message(*ids, user("first"))
        with ExitStack() as opened:
            for ids in held:
                path = Path(paths_of(tmp_path, ChatKey(*ids)).log)
                log = opened.enter_context(path.open("rb"))  # noqa: ASYNC230
                fcntl.flock(log, fcntl.LOCK_EX)
            waiting = [save(storage, ids) for ids in held]
            done = await outcomes_of([save(storage, ids) for ids in free])
            assert not any(isinstance(one, Exception) for one in done)
            assert not any(one.done() for one in waiting)
        stored = await outcomes_of(waiting)
        assert [message.position for (message,) in stored] == [2] * 12


async def test_a_first_save_that_fails_leaves_no_file(tmp_path, monkeypatch):
    """Here because its bytes could not be written."""

    def fail(*_args):
        raise OSError(28, "No space left on device")

    async with FileChatStorage(tmp_path) as storage:
        with monkeypatch.context() as full:
            full.setattr(file_appender, "write_or_undo", fail)
            with pytest.raises(StorageUnavailableError):
                await storage.save_chat_message(*IDS, user("first"))
        assert not log_of(tmp_path).exists()
        await storage.save_chat_message(*IDS, user("second"))
    assert [m.content for m in await fetched(tmp_path)] == ["second"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are not counted here")
async def test_a_burst_opens_few_files(tmp_path, monkeypatch):
    """Whatever the number of chats: a process may have no more than 256."""
    peak, real = 0, os.fdatasync

    def sync(descriptor):
        nonlocal peak
        peak = max(peak, len(os.listdir("/proc/self/fd")))  # noqa: PTH208
        real(descriptor)

    keys = chats(300)
    async with FileChatStorage(tmp_path) as storage:
        for ids in keys:
            await storage.save_chat_message(*ids, user("first"))
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        monkeypatch.setattr(os, "fdatasync", sync)
        await outcomes_of([save(storage, ids) for ids in keys])
    assert peak - before <= 80


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), MemoryError(), OSError(5)])
async def test_whatever_ends_a_thread_s_work_is_told_to_all_who_wait(tmp_path, monkeypatch, error):
    """Nobody waits for ever, and the next saves find threads that work."""
    keys = chats(40)
    storage = FileChatStorage(tmp_path)
    for ids in keys:
        await storage.save_chat_message(*ids, user("first"))
    monkeypatch.setattr(os, "fdatasync", Once(os.fdatasync, error))
    told = await outcomes_of([save(storage, ids) for ids in keys])
    assert 1 <= sum(isinstance(one, Exception) for one in told) <= 8
    assert all(one.stored is not True for one in told if isinstance(one, StorageUnavailableError))
    again = await outcomes_of([save(storage, ids, "third") for ids in keys])
    assert not any(isinstance(one, Exception) for one in again)
    # Not after closing: a store that counts threads that are gone waits for them for ever.
    async with asyncio.timeout(30):
        while storage._queue._workers != writing_threads(storage):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await storage.aclose()
    for ids, one in zip(keys, told, strict=True):
        contents = [m.content for m in await fetched(tmp_path, ChatKey(*ids))]
        assert contents[0] == "first"
        assert contents[-1] == "third"
        assert isinstance(one, Exception) or contents == ["first", "second", "third"]


@pytest.mark.parametrize("known", [True, False])
async def test_a_file_that_cannot_be_closed_was_stored_all_the_same(tmp_path, monkeypatch, known):
    """Closing comes after the sync: its failure is no failure of the save."""
    keys = chats(20)
    async with FileChatStorage(tmp_path) as storage:
        for ids in keys if known else []:
            await storage.save_chat_message(*ids, user("first"))
        monkeypatch.setattr(os, "fstat", _failing_after_sync(monkeypatch))
        told = await outcomes_of([save(storage, ids) for ids in keys])
        assert not any(isinstance(one, Exception) for one in told)
    assert await problems(tmp_path) == []


def _failing_after_sync(monkeypatch):
    """An `os.fstat` that fails in a thread whose last call was a sync."""
    real_stat, real_sync, synced = os.fstat, os.fdatasync, threading.local()

    def sync(descriptor):
        real_sync(descriptor)
        synced.now = True

    def stat(descriptor):
        if getattr(synced, "now", False):
            synced.now = False
            raise OSError(5, "no")
        return real_stat(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    return stat


async def test_out_of_memory_in_a_new_chat_leaves_nothing_behind(tmp_path, monkeypatch):
    """The next save makes the file anew, header first."""
    async with FileChatStorage(tmp_path) as storage:
        failing = Once(file_appender.encode_line, MemoryError())
        monkeypatch.setattr(file_appender, "encode_line", failing)
        with pytest.raises(MemoryError):
            await storage.save_chat_message(*IDS, user("first"))
        await storage.save_chat_message(*IDS, user("second"))
    assert [m.content for m in await fetched(tmp_path)] == ["second"]
    assert [*parsed_lines(log_of(tmp_path))[0]][:2] == ["v", "chat"]
    assert await problems(tmp_path) == []


async def test_out_of_memory_in_the_midst_of_a_batch_stores_none_of_it(tmp_path, monkeypatch):
    """And what waited with it is stored at the places that it would have had without."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("zero"))
        real, calls = file_appender.encode_line, []

        def second_fails(*args):
            calls.append(args)
            if len(calls) == 2:
                raise MemoryError
            return real(*args)

        monkeypatch.setattr(file_appender, "encode_line", second_fails)
        batch = [user("a", id="a"), user("b", id="b"), user("c", id="c")]
        with pytest.raises(MemoryError):
            await storage.save_chat_messages(*IDS, batch)
        (later,) = await storage.save_chat_message(*IDS, user("later"))
        assert later.position == 2
        stored = await storage.save_chat_messages(*IDS, batch)
        assert [message.position for message in stored] == [3, 4, 5]
    contents = [m.content for m in await fetched(tmp_path)]
    assert contents == ["zero", "later", "a", "b", "c"]
    assert await problems(tmp_path) == []


async def test_a_batch_given_up_half_way_leaves_no_byte_in_what_waited_with_it(tmp_path):
    """Here out of memory in the second of three lines, in the midst of a group."""
    batches = [[user(f"{name} {n}") for n in range(3)] for name in ("one", "bad", "two")]
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("zero"))
        saves = [PendingSave(ChatKey(*IDS), batch, batch) for batch in batches]
        real = file_appender.encode_line

        def fails(entry):
            if entry.content == "bad 1":
                raise MemoryError
            return real(entry)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(file_appender, "encode_line", fails)
            one, bad, two = await asyncio.to_thread(storage._appender.commit, saves)
        assert isinstance(bad, MemoryError)
        assert [entry.position for log in (one, two) for entry in log.entries] == [*range(2, 8)]
    contents = [m.content for m in await fetched(tmp_path)]
    assert contents == ["zero", *(f"{name} {n}" for name in ("one", "two") for n in range(3))]
    assert await problems(tmp_path) == []


async def test_each_of_many_that_wait_gets_an_error_of_its_own(tmp_path, monkeypatch):
    """Raising one error many times would add all of that to its traceback."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("first"))

        def fail(*_args):
            raise RuntimeError("no")

        monkeypatch.setattr(file_appender, "load_state", fail)
        monkeypatch.setattr(storage._appender.cache, "take", fail)
        told = await outcomes_of([save(storage, IDS, str(number)) for number in range(50)])
    assert len({id(error) for error in told}) == 50
    assert max(len(traceback.extract_tb(error.__traceback__)) for error in told) < 12


async def test_no_thread_can_be_started(tmp_path, monkeypatch):
    """The store is not closed: where none is at work the save says so, else those do it."""
    async with FileChatStorage(tmp_path) as storage:

        def refuse(_thread):
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            (told,) = await outcomes_of([save(storage, IDS)])
        assert isinstance(told, StorageUnavailableError)
        assert told.stored is False
        await storage.save_chat_message(*IDS, user("first"))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            many = await outcomes_of([save(storage, ids) for ids in chats(10)])
        assert not any(isinstance(one, Exception) for one in many)
        await storage.save_chat_message(*IDS, user("last"))
    assert storage._queue._workers == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
async def test_a_store_used_before_a_fork_is_refused_in_the_child(tmp_path):
    """Its threads are the parent's; waiting for them would never end."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("hello"))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                work = storage.fetch_chat(*IDS)
                work.send(None)
            except StorageUnavailableError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            assert "parent process" in answer.read()
        os.waitpid(child, 0)  # noqa: ASYNC222 - it has ended
        assert len(await storage.fetch_chat(*IDS)) == 1
