"""What editors leave of a file, what is no file, who may read it, and what a delete leaves."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from pathlib import Path

import pytest
from file_support import (
    IDS,
    KEY,
    entries,
    fetched,
    log_of,
    parsed_lines,
    problems,
    raw_lines,
    saved,
    users,
)

from agent_memory import ChatKey, ConversationMessage, FileChatStorage, StorageUnavailableError
from agent_memory.records import Covered, SummaryRecord
from agent_memory.storage.file.directory import paths_of
from unprivileged import as_nobody, directory_for_anybody, needs_permissions

ENDS = [b"", b" ", b"\r", b"\r\n", b" \t\r"]
"""What editors and transfers make of the end of a last line."""

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX alone")


def contents(messages):
    return [message.content for message in messages]


def warned(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def give_end(path, end):
    path.write_bytes(path.read_bytes()[:-1] + end)


def record_of(message, text="summary"):
    return SummaryRecord(
        summary=(ConversationMessage("user", text),),
        head=(),
        position=message.position,
        message_id=message.id,
        floor=0,
        covered=Covered(1, message.position, message.position),
    )


# -------------------------------------------------------------- C91: a last line that is whole


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("batches", [[1], [1, 1], [1, 3], [3]])
async def test_c91_a_last_line_without_its_end_is_kept(tmp_path, caplog, end, batches):
    """It is read, the next save goes on behind it, and no damage is told."""
    groups = [users(count, f"{number} ") for number, count in enumerate(batches)]
    await saved(tmp_path, *groups)
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + end)
    expected = [message.content for group in groups for message in group]
    assert contents(await fetched(tmp_path)) == expected
    assert await problems(tmp_path) == []
    await saved(tmp_path, users(2, "after "))
    assert contents(await fetched(tmp_path)) == [*expected, "after 1", "after 2"]
    assert [line["position"] for line in parsed_lines(path)[1:]] == [*range(1, len(expected) + 3)]
    assert warned(caplog) == []


@pytest.mark.parametrize("end", [end for end in ENDS if b"\n" not in end])
@pytest.mark.parametrize("line", [2, 3])
async def test_c91_an_end_lost_within_a_batch_cuts_nothing(tmp_path, end, line):
    """Two entries of one save on one line, the file's last end there or not (C25)."""
    await saved(tmp_path, users(1, "before "), users(3, "batch "))
    path = log_of(tmp_path)
    lines = raw_lines(path)
    glued = {line, line + 1}
    expected = [
        (position, content)
        for position, content in enumerate(["before 1", "batch 1", "batch 2", "batch 3"], 1)
        if position not in glued
    ]
    for last in (b"\n", end):
        changed = [*lines[:-1], lines[-1][:-1] + last]
        changed[line] = changed[line][:-1] + end
        path.write_bytes(b"".join(changed))
        assert [(m.position, m.content) for m in await fetched(tmp_path)] == expected
        assert [entry.position for entry in await entries(tmp_path)] == [1, 2, 3, 4]
    await saved(tmp_path, users(1, "after "))
    assert [(m.position, m.content) for m in await fetched(tmp_path)] == [
        *expected,
        (5, "after 1"),
    ]
    assert path.read_bytes().startswith(b"".join([*lines[:line], lines[line][:-1] + end]))


@pytest.mark.parametrize("end", ENDS)
async def test_c91_the_floor_of_a_deleted_chat_is_kept(tmp_path, end):
    """A file with its first line alone: no position is used twice."""
    await saved(tmp_path, users(3))
    async with FileChatStorage(tmp_path) as storage:
        await storage.delete_chat(*IDS)
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + end)
    await saved(tmp_path, users(1))
    assert [m.position for m in await fetched(tmp_path)] == [4]
    assert len(parsed_lines(path)) == 2


@pytest.mark.parametrize("end", ENDS)
async def test_c91_a_summary_without_its_end_is_kept(tmp_path, end):
    """It is loaded, and its successor follows it."""
    await saved(tmp_path, users(3))
    path = Path(paths_of(tmp_path, KEY).summaries)
    async with FileChatStorage(tmp_path) as storage:
        *_, last = await storage.fetch_chat(*IDS)
        summaries = storage.summaries()
        first, second = record_of(last, "first"), record_of(last, "second")
        assert await summaries.save_summary(KEY, first, replaces=None)
        give_end(path, end)
        assert await summaries.load_summary(KEY) == first
        assert await summaries.save_summary(KEY, second, replaces=first.id)
        assert await summaries.list_summaries(KEY) == [first, second]
        assert await summaries.load_summary(KEY) == second
    assert len(parsed_lines(path)) == 2
    assert await problems(tmp_path) == []


@pytest.mark.parametrize("size", [5_000, 40_000, 600_000])
async def test_c91_a_long_last_line_is_kept_too(tmp_path, size):
    """Longer than what is read of a file at once."""
    await saved(tmp_path, users(1), [ConversationMessage("user", "x" * size)])
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    await saved(tmp_path, users(1, "after "))
    assert [len(text) for text in contents(await fetched(tmp_path))] == [9, size, 7]


async def test_c91_a_store_in_use_keeps_it_too(tmp_path):
    """What it remembers of the file is not believed when the file has changed."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages(*IDS, users(1))
        path = log_of(tmp_path)
        path.write_bytes(path.read_bytes()[:-1])
        (message,) = await storage.fetch_chat(*IDS)
        assert [m.position for m in await storage.save_chat_message(*IDS, message)] == [1]
        await storage.save_chat_messages(*IDS, users(1, "after "))
        assert contents(await storage.fetch_chat(*IDS)) == ["message 1", "after 1"]
    assert [m.content for m in await entries(tmp_path)] == ["message 1", "after 1"]


async def test_c91_a_trim_keeps_it_too(tmp_path):
    """What is copied to the new file gets its end."""
    await saved(tmp_path, users(4))
    path = log_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.trim_chat(*IDS, 2) == 2
        await storage.save_chat_messages(*IDS, users(1, "after "))
    assert [line["position"] for line in parsed_lines(path)[1:]] == [3, 4, 5]


# ------------------------------------------------------------------ C94, C103: links, no files


def place(directory: Path, what: str, elsewhere: Path) -> None:
    """Put a link where the store wants a directory or file of its own."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.symlink_to(elsewhere / "nothing" if what == "dangling" else elsewhere)


@posix
@pytest.mark.parametrize("what", ["dangling", "a directory"])
@pytest.mark.parametrize("level", ["user", "session"])
async def test_c94_a_linked_directory_is_refused(tmp_path, what, level):
    """Nothing is made, read or removed behind it."""
    root, elsewhere = tmp_path / "chats", tmp_path / "elsewhere"
    await saved(root, users(1), key=ChatKey("other", "session", "agent"))
    await saved(elsewhere / "hidden", users(2))
    inside = elsewhere / "hidden" / ("user" if level == "user" else "user/session")
    place(root / ("user" if level == "user" else "user/session"), what, inside)
    before = sorted(elsewhere.rglob("*"))
    async with FileChatStorage(root) as storage:
        for call in (
            storage.save_chat_messages(*IDS, users(1)),
            storage.fetch_chat(*IDS),
            storage.fetch_all_chats("user", "session"),
            storage.trim_chat(*IDS, 1),
            storage.delete_chat(*IDS),
            storage.summaries().load_summary(KEY),
            storage.summaries().forget_summaries(KEY),
            anext(storage.list_chats("user", "session")),
        ):
            with pytest.raises(StorageUnavailableError, match="a symbolic link"):
                await call
        assert [info.key.user_id async for info in storage.list_chats()] == ["other"]
        found = [problem async for problem in storage.verify()]
    assert sorted(elsewhere.rglob("*")) == before
    assert [problem.location for problem in found if "link" in problem.reason] == (
        [str(root / ("user" if level == "user" else "user/session"))]
    )


def put_in_place_of(path, kind, target):
    """Put something that is no file where the store has one."""
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(target)
        if kind == "link":
            target.write_bytes(b"")


@posix
@pytest.mark.parametrize("kind", ["dangling link", "link", "FIFO", "directory"])
@pytest.mark.parametrize("suffix", ["log", "summaries"])
async def test_c103_what_is_no_file_is_refused_at_once(tmp_path, kind, suffix):
    """Opening a FIFO would wait for ever; a link would read or make a file elsewhere."""
    root, target = tmp_path / "chats", tmp_path / "elsewhere"
    await saved(root, users(2))
    (last,) = await fetched_last(root)
    put_in_place_of(Path(getattr(paths_of(root, KEY), suffix)), kind, target)
    async with FileChatStorage(root) as storage:
        summaries = storage.summaries()
        calls = {
            "log": (
                lambda: storage.save_chat_messages(*IDS, users(1)),
                lambda: storage.fetch_chat(*IDS),
                lambda: storage.delete_chat(*IDS),
                lambda: summaries.save_summary(KEY, record_of(last), replaces=None),
            ),
            "summaries": (
                lambda: summaries.load_summary(KEY),
                lambda: summaries.list_summaries(KEY),
                lambda: summaries.save_summary(KEY, record_of(last), replaces=None),
            ),
        }
        for call in calls[suffix]:
            with pytest.raises(StorageUnavailableError, match=r"leaves alone|Is a directory"):
                await asyncio.wait_for(call(), 30)
        assert [problem.key async for problem in storage.verify()] != []
    assert not target.exists() or target.read_bytes() == b""


async def fetched_last(root):
    async with FileChatStorage(root) as storage:
        return await storage.fetch_chat(*IDS, 1)


@posix
async def test_c94_a_link_where_a_trim_writes_is_replaced(tmp_path):
    """Its temporary file is made anew; what the link points to stays as it is."""
    root, target = tmp_path / "chats", tmp_path / "precious"
    target.write_text("precious")
    await saved(root, users(3))
    put_in_place_of(Path(paths_of(root, KEY).temporary), "dangling link", target)
    async with FileChatStorage(root) as storage:
        assert await storage.trim_chat(*IDS, 1) == 2
    assert target.read_text() == "precious"
    assert contents(await fetched(root)) == ["message 3"]
    assert not log_of(root).is_symlink()


@posix
async def test_c94_the_stores_own_directory_may_be_a_link(tmp_path):
    """That is its owner's choice."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "chats").symlink_to(tmp_path / "disk")
    await saved(tmp_path / "chats", users(1))
    assert contents(await fetched(tmp_path / "disk")) == ["message 1"]


@posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
async def test_c103_files_and_directories_are_private(tmp_path, umask):
    """Whatever the umask; also after a trim."""
    root = tmp_path / "deep" / "chats"
    before = os.umask(umask)
    try:
        async with FileChatStorage(root) as storage:
            *_, last = await storage.save_chat_messages(*IDS, users(3))
            assert await storage.summaries().save_summary(KEY, record_of(last), replaces=None)
            await storage.save_chat_messages("user", "2", "agent", users(2))
            await storage.trim_chat("user", "2", "agent", 1)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "deep").rglob("*")}
    assert len(found) == 7
    assert set(found.values()) == {0o600, 0o700}
    assert all((mode == 0o700) == path.is_dir() for path, mode in found.items())
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700


@posix
async def test_c103_a_trim_leaves_the_mode_that_somebody_chose(tmp_path):
    """A file that was opened to a group stays open to it."""
    await saved(tmp_path, users(3))
    log_of(tmp_path).chmod(0o640)
    async with FileChatStorage(tmp_path) as storage:
        await storage.trim_chat(*IDS, 1)
    assert stat.S_IMODE(log_of(tmp_path).stat().st_mode) == 0o640


# --------------------------------------------------------------------- C105: who may read it


@needs_permissions
@pytest.mark.parametrize("closed", ["user", "user/session", "user/session/agent.jsonl"])
async def test_c105_one_that_may_not_be_read_hides_no_other(caplog, closed):
    """The others are listed; a warning and `verify` name the one; reading it is an error."""
    with directory_for_anybody() as root:
        others = [ChatKey("a", "s", "x"), ChatKey("user2", "s", "x"), ChatKey("z", "s", "x")]
        for key in (*others, KEY):
            await saved(root, users(2), key=key)
        with as_nobody(root):
            (root / closed).chmod(0o000)
            async with FileChatStorage(root) as storage:
                assert [info.key async for info in storage.list_chats()] == others
                (warning,) = warned(caplog)
                found = [problem async for problem in storage.verify()]
                for call in (
                    storage.fetch_all_chats("user", "session"),
                    storage.delete_chats("user"),
                    storage.delete_chats("user", "session"),
                ):
                    with pytest.raises(StorageUnavailableError, match="Permission denied"):
                        await call
                with pytest.raises(StorageUnavailableError, match="Permission denied"):
                    await storage.fetch_chat(*IDS)
            (root / closed).chmod(0o700)
        assert str(root / closed) in warning
        assert [problem.location for problem in found] == [str(root / closed)]


# ------------------------------------------------------------------------- C109: erased text


@pytest.mark.parametrize("how", ["delete_chat", "delete_chats", "trim_chat", "summaries"])
async def test_c109_deleted_text_is_gone_from_the_directory(tmp_path, how):
    """Messages and summaries, while the store is open."""
    secret = [ConversationMessage("user", f"SECRET {number}" * 50) for number in range(30)]
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_messages("kept", "s", "a", users(3))
        *_, last = await storage.save_chat_messages(*IDS, secret)
        summaries = storage.summaries()
        assert await summaries.save_summary(KEY, record_of(last, "SECRET"), replaces=None)
        if how == "delete_chat":
            await storage.delete_chat(*IDS)
        elif how == "delete_chats":
            await storage.delete_chats("user")
        elif how == "trim_chat":
            await storage.save_chat_messages(*IDS, users(1))
            await storage.trim_chat(*IDS, 1)
        else:
            await summaries.forget_summaries(KEY)
            await storage.delete_chat(*IDS)
        found = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path for path in found if b"SECRET" in path.read_bytes()] == []
        assert len(await storage.fetch_chat("kept", "s", "a")) == 3
