"""The file store keeps the contract, and its files are what its users were told."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from functools import partial

import pytest
from file_support import IDS, KEY, fetched, log_of, make_unreadable, parsed_lines, run, saved

from agent_memory import (
    ChatKey,
    ConversationMessage,
    FileChatStorage,
    InvalidRequestError,
)
from agent_memory.errors import CorruptedRecordError
from agent_memory.storage.file import line_format as file_lines
from agent_memory.testing import ChatStorageTests


class TestFile(ChatStorageTests):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return partial(FileChatStorage, tmp_path / "chats")

    async def corrupt(self, storage, key, position):
        make_unreadable(log_of(storage._root, key), position)


def user(content, **fields):
    return ConversationMessage("user", content, **fields)


async def test_a_line_is_a_message_that_jq_and_grep_understand(tmp_path):
    """A line holds the position, the batch and the message's fields, flat."""
    await saved(tmp_path, [user("one")], [user("two"), user([{"text": "three"}])])
    header, *lines = parsed_lines(tmp_path / "user" / "session" / "agent.jsonl")
    assert header["chat"] == {"user_id": "user", "session_id": "session", "agent_id": "agent"}
    assert header["floor"] == 0
    assert [line["content"] for line in lines] == ["one", "two", [{"text": "three"}]]
    places = [(line["position"], line["batch_start"], line["batch_length"]) for line in lines]
    assert places == [(1, 1, 1), (2, 2, 2), (3, 2, 2)]


async def test_c09_chinese_stays_readable_and_grows_by_its_utf8_size(tmp_path):
    """No escapes: three bytes a character."""
    path = log_of(tmp_path)
    await saved(tmp_path, [user("")])
    before = path.stat().st_size
    await saved(tmp_path, [user("座標" * 1000, id="x" * 36)])
    assert "座標座標" in path.read_text("utf-8")
    assert path.stat().st_size - before < 2 * 1000 * 3 + 300


@pytest.mark.parametrize("content", ["\n\r\u2028\u2029\x85\x1e", "\x00", "\ud800", b"\n\x00"])
async def test_c03_no_character_breaks_a_line(tmp_path, content):
    """What ends a line elsewhere does not here."""
    await saved(tmp_path, [user(content)], [user("next")])
    assert len(parsed_lines(log_of(tmp_path))) == 3
    assert [m.content for m in await fetched(tmp_path)] == [content, "next"]


async def test_c12_reading_unknown_chats_creates_nothing(tmp_path):
    """Neither files nor directories, the store's own included."""
    root = tmp_path / "chats"
    async with FileChatStorage(root) as storage:
        for number in range(100):
            assert await storage.fetch_chat("user", str(number), "agent") == []
        assert await storage.delete_chat(*IDS) == 0
        assert await storage.summaries().load_summary(KEY) is None
        assert [info async for info in storage.list_chats()] == []
    assert not root.exists()


@pytest.mark.parametrize("directory", [None, 7, "", b"chats", "a\0b"])
def test_what_is_no_directory_is_refused(directory):
    """A store says at once that it cannot lie there."""
    with pytest.raises(InvalidRequestError, match="directory must be a"):
        FileChatStorage(directory)


def test_a_file_instead_of_a_directory_is_refused(tmp_path):
    """The message names the file."""
    path = tmp_path / "chats.json"
    path.write_text("{}")
    with pytest.raises(InvalidRequestError, match=r"chats\.json is a file"):
        FileChatStorage(path)


@pytest.mark.parametrize(
    "options", [{"durability": "some"}, {"lock_timeout": -1}, {"lock_timeout": "1"}]
)
def test_options_out_of_range_are_refused(tmp_path, options):
    """Each option says what it takes."""
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        FileChatStorage(tmp_path, **options)


async def test_a_relative_directory_does_not_move(tmp_path, monkeypatch):
    """It is where it was when the store was made."""
    monkeypatch.chdir(tmp_path)
    async with FileChatStorage("chats") as storage:
        monkeypatch.chdir("/")
        await storage.save_chat_message(*IDS, user("here"))
    assert len(await fetched(tmp_path / "chats")) == 1


async def test_another_writer_is_noticed(tmp_path):
    """What a store remembers of a file is void once somebody else wrote to it."""
    async with FileChatStorage(tmp_path) as one, FileChatStorage(tmp_path) as two:
        for number in range(20):
            await (one, two)[number % 2].save_chat_message(*IDS, user(number))
        (stored,) = await one.save_chat_message(*IDS, user("last"))
    assert stored.position == 21
    assert [line["position"] for line in parsed_lines(log_of(tmp_path))[1:]] == [*range(1, 22)]


async def test_saves_that_wait_share_a_write(tmp_path, monkeypatch):
    """Of a hundred at once on one chat, those behind the first go to the disk together."""
    syncs, gathered = [], threading.Event()
    real = os.fdatasync

    def sync(descriptor):
        syncs.append(descriptor)
        assert gathered.wait(60)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    async with FileChatStorage(tmp_path) as storage:
        messages = [user(str(number)) for number in range(100)]
        first = asyncio.ensure_future(storage.save_chat_message(*IDS, messages[0]))
        while not syncs:  # noqa: ASYNC110 - a thread tells
            await asyncio.sleep(0)
        rest = asyncio.gather(*(storage.save_chat_message(*IDS, m) for m in messages[1:]))
        while len(storage._queue._lanes[KEY]) < 99:  # noqa: ASYNC110
            await asyncio.sleep(0)
        gathered.set()
        stored = [await first, *await rest]
    assert sorted(message.position for (message,) in stored) == [*range(1, 101)]
    assert len(syncs) == 2


async def test_c17_a_bad_batch_in_a_group_fails_alone(tmp_path):
    """Those that waited with it are stored."""
    first = user("first")
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, first)
        batches = [[user(str(n))] for n in range(10)]
        batches[4] = [user("new"), user("other", id=first.id)]
        saves = (storage.save_chat_messages(*IDS, batch) for batch in batches)
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        assert [isinstance(outcome, Exception) for outcome in outcomes].count(True) == 1
        stored = await storage.fetch_chat(*IDS)
    assert sorted(m.content for m in stored) == sorted(["first", *"01235"[:4], *"56789"])


async def test_c17_a_batch_that_cannot_be_encoded_fails_alone(tmp_path, monkeypatch):
    """Nothing of it is stored, nothing else is lost."""
    real = file_lines.encode_entry
    good, bad = user("good"), user("bad")

    def encode(entry):
        if entry.content == "bad":
            raise ValueError("cannot be encoded")
        return real(entry)

    monkeypatch.setattr(file_lines, "encode_entry", encode)
    async with FileChatStorage(tmp_path) as storage:
        batch = storage.save_chat_messages(*IDS, [user("1"), user("2"), user("3"), bad, user("5")])
        failed, _ = await asyncio.gather(
            batch, storage.save_chat_message(*IDS, good), return_exceptions=True
        )
        assert isinstance(failed, ValueError)
        assert await storage.fetch_chat(*IDS) == [good]


async def test_the_log_of_another_chat_is_not_taken_for_this_one(tmp_path):
    """A copied directory is refused, not read as somebody else's."""
    await saved(tmp_path, [user("secret")])
    (tmp_path / "user").rename(tmp_path / "mallory")
    async with FileChatStorage(tmp_path) as storage:
        with pytest.raises(CorruptedRecordError, match="says that it is the chat of user 'user'"):
            await storage.fetch_chat("mallory", "session", "agent")
        with pytest.raises(CorruptedRecordError, match="move it back"):
            await storage.save_chat_message("mallory", "session", "agent", user("mine"))


async def test_a_file_of_a_newer_release_is_refused(tmp_path):
    """Neither read nor appended to, as that would spoil it."""
    await saved(tmp_path, [user("hello")])
    path = log_of(tmp_path)
    before = path.read_bytes().replace(b'"v":1', b'"v":2', 1)
    path.write_bytes(before)
    async with FileChatStorage(tmp_path) as storage:
        for call in (storage.fetch_chat(*IDS), storage.save_chat_message(*IDS, user("more"))):
            with pytest.raises(CorruptedRecordError, match="upgrade"):
                await call
    assert path.read_bytes() == before


async def test_chats_with_hashed_names_are_listed_by_their_first_lines(tmp_path):
    """Ids whose names would be too long come back as they were."""
    keys = [ChatKey("😀" * 60 + str(n), "é" * 127, "漢" * 85) for n in range(3)]
    for key in keys:
        await saved(tmp_path, [user("hello")], key=key)
    async with FileChatStorage(tmp_path) as storage:
        assert [info.key async for info in storage.list_chats()] == keys


async def test_purge_removes_files_and_empty_directories(tmp_path):
    """What a deleted chat left goes, with its directories."""
    async with FileChatStorage(tmp_path) as storage:
        await storage.save_chat_message(*IDS, user("hello"))
        await storage.save_chat_message("other", "session", "agent", user("stays"))
        await storage.delete_chat(*IDS)
        assert log_of(tmp_path).exists()
        assert await storage.purge(timedelta(days=1)) == 0
        assert await storage.purge(timedelta(0)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


def test_a_forgotten_store_warns_and_lets_the_process_end(tmp_path):
    """Once, and nothing hangs."""
    program = (
        "import asyncio, sys\n"
        "from agent_memory import ConversationMessage, FileChatStorage\n"
        "async def main():\n"
        "    storage = FileChatStorage(sys.argv[1])\n"
        "    await storage.save_chat_message('u', 's', 'a', ConversationMessage('user', 'x'))\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-W", "always", "-c", program, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr.count("ResourceWarning: FileChatStorage(") == 1


def test_jq_reads_the_file(tmp_path):
    """The real jq, where it is installed."""
    run(saved(tmp_path, [user("one"), user("two")]))
    command = ["jq", "-r", 'select(.role == "user") | .content', str(log_of(tmp_path))]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("jq is not installed")
    assert found.stdout.split() == ["one", "two"]
    assert json.loads(log_of(tmp_path).read_text("utf-8").splitlines()[1])["content"] == "one"
