"""SQLite files that are deleted, replaced, read-only or none."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat

import pytest
from sql_tools import IDS, contents, user
from sqlalchemy import event

from agent_memory import SqlChatStorage, StorageError, StorageUnavailableError
from unprivileged import as_nobody, directory_for_anybody, needs_permissions

FILES = "", "-wal", "-shm"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chats.db"


@pytest.fixture
async def storage(path):
    async with SqlChatStorage(f"sqlite:///{path}") as storage:
        yield storage


def parts(path):
    return [path.with_name(path.name + part) for part in FILES]


def remove(path):
    for part in parts(path):
        part.unlink(missing_ok=True)


async def new_database(path, *messages):
    """A database as another process would leave it: closed, one file."""
    async with SqlChatStorage(f"sqlite:///{path}") as other:
        await other.save_chat_messages(*IDS, messages)
    return path


def leave_a_log(path):
    """Do as a process that is killed: its log and index stay beside the database."""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE agent_memory_layout SET version = 1")
    connection.commit()
    copies = {part: part.read_bytes() for part in parts(path)}
    connection.close()
    for part, data in copies.items():
        part.write_bytes(data)


# -------------------------------------------------------------------- C100: deleted, replaced


async def test_c100_a_deleted_file_is_noticed_by_the_next_save(storage, path):
    """Nothing is acknowledged in a file without a name, and none is made in its place."""
    await storage.save_chat_message(*IDS, user("before"))
    remove(path)
    for _ in range(3):
        with pytest.raises(StorageUnavailableError, match=r"chats\.db.*(deleted|is gone)"):
            await storage.save_chat_message(*IDS, user("lost"))
    assert not path.exists()


async def test_c100_a_deleted_file_is_not_read(storage, path):
    """What is read without a name would not be there tomorrow."""
    await storage.save_chat_message(*IDS, user("before"))
    await storage.fetch_chat(*IDS)
    remove(path)
    with pytest.raises(StorageUnavailableError, match="is gone"):
        await storage.fetch_chat(*IDS)
    assert not path.exists()


async def test_c100_a_deleted_file_that_is_put_back_is_used_again(storage, path, tmp_path):
    """The store needs no restart, and reads what it saves."""
    await storage.save_chat_message(*IDS, user("before"))
    await storage.fetch_chat(*IDS)
    with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "backup.db") as backup:
        source.backup(backup)
    source.close()
    backup.close()
    remove(path)
    with pytest.raises(StorageUnavailableError):
        await storage.save_chat_message(*IDS, user("lost"))
    shutil.move(tmp_path / "backup.db", path)
    await storage.save_chat_message(*IDS, user("after"))
    assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]
    async with SqlChatStorage(f"sqlite:///{path}") as other:
        assert contents(await other.fetch_chat(*IDS)) == ["before", "after"]


async def test_c100_a_replaced_file_is_noticed_and_then_used(storage, path, tmp_path):
    """The save that meets it is told; from then on reads and saves are of the new file."""
    await storage.save_chat_message(*IDS, user("old"))
    await storage.fetch_chat(*IDS)
    replacement = await new_database(tmp_path / "new.db", user("new"))
    remove(path)
    replacement.rename(path)
    with pytest.raises(StorageUnavailableError, match="deleted or replaced") as caught:
        await storage.save_chat_message(*IDS, user("lost"))
    assert caught.value.stored is None
    await storage.save_chat_message(*IDS, user("kept"))
    assert contents(await storage.fetch_chat(*IDS)) == ["new", "kept"]


async def test_c100_a_replaced_file_is_what_is_read(storage, path, tmp_path):
    """A reader follows the name at once: it has acknowledged nothing."""
    await storage.save_chat_message(*IDS, user("old"))
    assert contents(await storage.fetch_chat(*IDS)) == ["old"]
    replacement = await new_database(tmp_path / "new.db", user("new"))
    remove(path)
    replacement.rename(path)
    assert contents(await storage.fetch_chat(*IDS)) == ["new"]


async def test_c100_giving_up_the_old_file_leaves_the_new_ones_log(storage, path, tmp_path):
    """SQLite deletes a log by name at the last close: not that of another database."""
    await storage.save_chat_message(*IDS, user("old"))
    await storage.fetch_chat(*IDS)
    replacement = await new_database(tmp_path / "new.db", user("new"))
    remove(path)
    replacement.rename(path)
    async with SqlChatStorage(f"sqlite:///{path}") as other:
        await other.save_chat_message(*IDS, user("in the log"))
        log = parts(path)[1].stat()
        with pytest.raises(StorageUnavailableError):
            await storage.save_chat_message(*IDS, user("lost"))
        await storage.aclose()
        assert parts(path)[1].stat().st_ino == log.st_ino
        assert contents(await other.fetch_chat(*IDS)) == ["new", "in the log"]


async def test_c100_a_deleted_log_is_noticed(storage, path):
    """What is committed is there first, and would be gone with the process."""
    await storage.save_chat_message(*IDS, user("before"))
    await storage.fetch_chat(*IDS)
    parts(path)[1].unlink()
    with pytest.raises(StorageUnavailableError, match="-wal file, was deleted"):
        await storage.save_chat_message(*IDS, user("told as unsure"))
    await storage.save_chat_message(*IDS, user("after"))
    assert contents(await storage.fetch_chat(*IDS))[-1] == "after"


async def test_c100_every_caller_of_a_group_is_told(storage, path):
    """Not only the first of those that share the commit."""
    await storage.save_chat_message(*IDS, user("before"))
    remove(path)
    saves = [storage.save_chat_message("u", f"{n}", "a", user("lost")) for n in range(20)]
    told = await asyncio.gather(*saves, return_exceptions=True)
    assert [type(one) for one in told] == [StorageUnavailableError] * 20


async def test_c100_deletes_are_not_acknowledged_either(storage, path):
    """A trim, a delete and a summary are as lost as a save."""
    await storage.save_chat_messages(*IDS, [user("one"), user("two")])
    remove(path)
    with pytest.raises(StorageUnavailableError):
        await storage.trim_chat(*IDS, 1)
    with pytest.raises(StorageUnavailableError):
        await storage.delete_chat(*IDS)


async def test_c100_a_file_behind_a_link_is_watched(tmp_path):
    """The link's target is the file; SQLite puts the log beside that."""
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "real.db", tmp_path / "chats.db"
    await new_database(target, user("before"))
    link.symlink_to(target)
    async with SqlChatStorage(f"sqlite:///{link}") as storage:
        for number in range(3):
            await storage.save_chat_message(*IDS, user(f"{number}"))
        assert len(await storage.fetch_chat(*IDS)) == 4
        remove(target)
        with pytest.raises(StorageUnavailableError):
            await storage.save_chat_message(*IDS, user("lost"))


async def test_c100_a_watched_file_keeps_its_connections(storage, path):
    """In ordinary use nothing is opened anew, whatever other connections do."""
    await storage.save_chat_message(*IDS, user("one"))
    await storage.fetch_chat(*IDS)
    opened = []
    event.listen(
        storage._parts().executor.engine, "connect", lambda *connected: opened.append(connected)
    )
    async with SqlChatStorage(f"sqlite:///{path}") as other:
        await other.save_chat_message(*IDS, user("two"))
        await other.delete_chat("nobody", "s", "a")
    await storage.save_chat_message(*IDS, user("three"))
    assert contents(await storage.fetch_chat(*IDS)) == ["one", "two", "three"]
    assert opened == []


# ------------------------------------------------------------------------ C101: read-only


@needs_permissions
@pytest.mark.parametrize("seen_by", ["a save", "a fetch"])
@pytest.mark.parametrize("left", ["a log", "nothing"])
async def test_c101_a_file_that_was_read_only_is_used_again(seen_by, left):
    """Once it may be written, the same store writes; also where a crash left a log."""
    with directory_for_anybody() as directory:
        path = await new_database(directory / "chats.db", user("before"))
        if left == "a log":
            leave_a_log(path)
        with as_nobody(directory):
            for part in parts(path):
                part.chmod(0o444) if part.exists() else None
            async with SqlChatStorage(f"sqlite:///{path}") as storage:
                if seen_by == "a fetch":
                    assert contents(await storage.fetch_chat(*IDS)) == ["before"]
                with pytest.raises(StorageUnavailableError, match="readonly"):
                    await storage.save_chat_message(*IDS, user("refused"))
                for part in parts(path):
                    part.chmod(0o644) if part.exists() else None
                await storage.save_chat_message(*IDS, user("after"))
                assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]


@needs_permissions
async def test_c101_a_file_that_could_not_be_opened_is_used_again():
    """Without any permission the store tells; with it, the same store works."""
    with directory_for_anybody() as directory:
        path = await new_database(directory / "chats.db", user("before"))
        with as_nobody(directory):
            path.chmod(0o000)
            storage = SqlChatStorage(f"sqlite:///{path}")
            with pytest.raises(StorageUnavailableError, match="unable to open"):
                await storage.fetch_chat(*IDS)
            path.chmod(0o600)
            await storage.save_chat_message(*IDS, user("after"))
            assert contents(await storage.fetch_chat(*IDS)) == ["before", "after"]
            await storage.aclose()


# --------------------------------------------------------------------- C103: modes, no files


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
async def test_c103_a_new_database_is_private(path, umask):
    """The file, its log and its index, whatever the umask."""
    before = os.umask(umask)
    try:
        async with SqlChatStorage(f"sqlite:///{path}") as storage:
            await storage.save_chat_message(*IDS, user("private"))
            await storage.fetch_chat(*IDS)
            modes = [stat.S_IMODE(part.stat().st_mode) for part in parts(path)]
    finally:
        os.umask(before)
    assert modes == [0o600] * 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("kind", ["FIFO", "device", "directory", "dangling link"])
async def test_c103_what_is_no_file_is_refused_at_once(path, kind):
    """Opening a FIFO would wait for ever; a link to nothing would make a file elsewhere."""
    target = path.with_name("elsewhere.db")
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path = "/dev/null"
    else:
        path.symlink_to(target)
    storage = SqlChatStorage(f"sqlite:///{path}")
    with pytest.raises(StorageUnavailableError, match=r"not a regular file|a link to nothing"):
        await asyncio.wait_for(storage.save_chat_message(*IDS, user("hello")), 30)
    await storage.aclose()
    assert not target.exists()


async def test_c103_who_only_reads_makes_nothing(path):
    """SQLite's own mode=ro is respected."""
    storage = SqlChatStorage(f"sqlite:///file:{path}?mode=ro&uri=true")
    with pytest.raises(StorageError):
        await storage.fetch_chat(*IDS)
    await storage.aclose()
    assert not path.exists()
