"""The pure parts of the file store: names, lines, searching; and the lock of other platforms."""

from __future__ import annotations

import asyncio
import io
import unicodedata
from datetime import timedelta

import pytest
from file_support import IDS, KEY, fetched, log_of, problems, saved
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import (
    ChatKey,
    ConversationMessage,
    FileChatStorage,
    SummaryRecord,
)
from agent_memory.errors import CorruptedRecordError
from agent_memory.records import Covered
from agent_memory.storage.file import chat_log as file_chat_log
from agent_memory.storage.file import lock as file_lock
from agent_memory.storage.file import trimming as file_trimming
from agent_memory.storage.file.chat_log import FileSnapshot, lines, lines_back
from agent_memory.storage.file.directory import id_of, name_of, paths_of
from agent_memory.storage.file.line_format import FileHeader, decode_header, encode_header


def user(content, **fields):
    return ConversationMessage("user", content, **fields)


def fits(text):
    return "\0" not in text and len(text.encode()) <= 255


IDENTIFIERS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255).filter(
    fits
)
AWKWARD = (
    *("a", "A", "CON", "con", "con.x", "nul", "COM1", "lpt9.a", "a.", "a..", ".", "..", "a "),
    *(" a", "-a", "~", "a~b", "%41", "%", "a/b", "a_b", "a\\b", "a:b", "a|b", "a#b", "\n"),
    *("\u00e9", "e\u0301", "\ufb01", "fi", "\u00df", "SS", "\u0130", "i\u0307", "*", "?", "<"),
    *("😀" * 63, "😀" * 62 + "a", "x" * 120, "x" * 121, "x" * 255, "X" * 255),
    *("agent", "agent.jsonl", "agent.summaries", '"'),
)


def folded(name):
    """What the least careful file system makes of a name."""
    return unicodedata.normalize("NFC", name).casefold().rstrip(". ")


# ------------------------------------------------------------------------------------- names


def test_c10_awkward_ids_have_names_that_no_file_system_confuses():
    """However it treats case, normal forms, dots and spaces at the end."""
    assert len({folded(name_of(identifier)) for identifier in AWKWARD}) == len(AWKWARD)


@given(st.lists(IDENTIFIERS, min_size=2, max_size=6, unique=True))
def test_names_are_injective(identifiers):
    """Also where file systems fold them."""
    assert len({folded(name_of(one)) for one in identifiers}) == len(identifiers)


@given(IDENTIFIERS)
@example("con")
@example("..")
def test_a_name_is_safe_everywhere_and_gives_its_id_back(identifier):
    """Unless it is so long that a hash stands for the rest."""
    name = name_of(identifier)
    assert len(name) <= 120
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.@%~")
    assert name[0] not in ".-"
    assert name[-1] != "."
    assert name.split(".")[0] not in ("con", "prn", "aux", "nul", "com1", "lpt1")
    assert id_of(name) == (None if "~" in name else identifier)


@pytest.mark.parametrize("name", ["A", "a b", "%41%", "%zz", "", "%00", "a~b", "%61", "%FF", "é"])
def test_a_name_that_was_not_made_here_stands_for_no_id(name):
    """Strangers' files in the directory are not taken for chats."""
    assert id_of(name) is None


async def test_c10_no_id_leaves_the_directory(tmp_path):
    """Whatever it is made of, and each chat is its own."""
    root = tmp_path / "deep" / "chats"
    async with FileChatStorage(root, durability="os") as storage:
        for identifier in AWKWARD:
            await storage.save_chat_message(identifier, identifier, identifier, user(identifier))
        listed = [info.key async for info in storage.list_chats()]
        for identifier in AWKWARD:
            (message,) = await storage.fetch_chat(identifier, identifier, identifier)
            assert message.content == identifier
    assert listed == sorted(ChatKey(one, one, one) for one in AWKWARD)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in root.parent.iterdir()] == ["chats"]


async def test_strangers_in_the_directory_do_not_disturb(tmp_path):
    """Files and directories that are no chats are neither listed nor touched."""
    await saved(tmp_path, [user("hello")])
    (tmp_path / "README").write_text("hands off")
    (tmp_path / "UPPER").mkdir()
    (tmp_path / "user" / "notes.txt").write_text("hands off")
    (tmp_path / "user" / "session" / "agent.txt").write_text("hands off")
    async with FileChatStorage(tmp_path) as storage:
        assert [info.key async for info in storage.list_chats()] == [KEY]
        assert [info.key async for info in storage.list_chats("user")] == [KEY]
        assert await storage.purge(timedelta(0)) == 0
    assert await problems(tmp_path) == []


# ------------------------------------------------------------------------------------- lines


@given(st.lists(st.binary(max_size=30), max_size=12), st.integers(1, 9))
def test_lines_are_the_same_forwards_and_backwards(parts, block):
    """With their places, whatever the blocks they are read in; a torn end is no line."""
    data = b"\n".join(part.replace(b"\n", b"") for part in parts)
    source = memory_snapshot(data)
    before = file_chat_log.FIRST_BLOCK, file_chat_log.BLOCK
    file_chat_log.FIRST_BLOCK, file_chat_log.BLOCK = block, block * 2
    try:
        forwards = list(lines(source, 0, len(data)))
        backwards = list(lines_back(source, 0, len(data)))
    finally:
        file_chat_log.FIRST_BLOCK, file_chat_log.BLOCK = before
    assert [line for _, line in forwards] == data.split(b"\n")[:-1]
    assert all(data[at : at + len(line)] == line for at, line in forwards)
    assert backwards == forwards[::-1]


def memory_snapshot(data):
    source = FileSnapshot.__new__(FileSnapshot)
    source._stored = len(data)
    source.size = len(data)
    source._all = None
    source.file = io.BytesIO(data)
    return source


@given(IDENTIFIERS, IDENTIFIERS, IDENTIFIERS, st.integers(0, 1 << 50))
def test_a_header_comes_back_equal(user_id, session_id, agent_id, floor):
    """And is one line."""
    header = FileHeader(ChatKey(user_id, session_id, agent_id), floor)
    line = encode_header(header)
    assert line.count(b"\n") == 1
    assert decode_header(line[:-1], "here") == header


@given(st.integers(0, 1000), st.integers(1, 255))
def test_a_damaged_header_never_says_something_else(at, flip):
    """It is the header, or none, or refused as a newer version's."""
    header = FileHeader(ChatKey("user", "session", "agent"), 17)
    line = bytearray(encode_header(header)[:-1])
    line[at % len(line)] ^= flip
    try:
        assert decode_header(bytes(line), "here") in (header, None)
    except CorruptedRecordError as error:
        assert "upgrade" in str(error)  # noqa: PT017 - one of three outcomes


# --------------------------------------------------------------------------- summary records


def record(position, message_id, **fields):
    given_fields = {
        "summary": (user("summary"),),
        "head": (),
        "position": position,
        "message_id": message_id,
        "floor": 0,
        "covered": Covered(1, position, position),
    }
    return SummaryRecord(**{**given_fields, **fields})


@pytest.fixture
async def summarized(tmp_path):
    """A store with a chat of four messages and two records, and the records' file."""
    async with FileChatStorage(tmp_path) as storage:
        stored = await storage.save_chat_messages(*IDS, [user(str(n)) for n in range(4)])
        store = storage.summaries()
        first, second = record(2, stored[1].id, id="first"), record(3, stored[2].id, id="second")
        assert await store.save_summary(KEY, first, replaces=None)
        assert await store.save_summary(KEY, second, replaces="first")
        yield storage, tmp_path / paths_of(tmp_path, KEY).summaries


async def test_records_are_lines_beside_the_chat(summarized):
    """A line each, oldest first."""
    _, path = summarized
    assert path.name == "agent.summaries"
    assert path.read_bytes().count(b"\n") == 2


async def test_c60_a_torn_record_is_as_if_it_had_never_been(summarized):
    """Its predecessor is the newest; the next one begins on a fresh line."""
    storage, path = summarized
    path.write_bytes(path.read_bytes()[:-5])
    store = storage.summaries()
    assert (await store.load_summary(KEY)).id == "first"
    third = record(4, "m", id="third")
    assert not await store.save_summary(KEY, third, replaces="second")
    assert await store.save_summary(KEY, third, replaces="first")
    assert [r.id for r in await store.list_summaries(KEY)] == ["first", "third"]


async def test_c61_a_corrupt_record_is_told_and_can_be_replaced(summarized):
    """Loading names the place; a new first record may follow it; the list has the rest."""
    storage, path = summarized
    path.write_bytes(path.read_bytes()[:-9] + b"########\n")
    store = storage.summaries()
    with pytest.raises(CorruptedRecordError) as caught:
        await store.load_summary(KEY)
    assert caught.value.location.startswith(f"{path}, byte ")
    (problem,) = await problems(path.parents[2])
    assert "line 2" in problem.location
    assert await store.save_summary(KEY, record(4, "m", id="new"), replaces=None)
    assert (await store.load_summary(KEY)).id == "new"
    assert [r.id for r in await store.list_summaries(KEY)] == ["first", "new"]


async def test_c61_a_newer_versions_record_is_not_replaced(summarized):
    """The older release goes on without it."""
    storage, path = summarized
    path.write_bytes(path.read_bytes().replace(b'"v":1', b'"v":2'))
    store = storage.summaries()
    with pytest.raises(CorruptedRecordError, match="upgrade"):
        await store.load_summary(KEY)
    assert not await store.save_summary(KEY, record(4, "m"), replaces=None)


async def test_c39_records_that_outlived_a_trim_are_void(summarized):
    """As after a power failure that kept the file of records, but not the messages."""
    storage, path = summarized
    left = path.read_bytes()
    await storage.trim_chat(*IDS, 2)
    assert not path.exists()
    path.write_bytes(left)
    store = storage.summaries()
    assert await store.load_summary(KEY) is None
    assert await store.list_summaries(KEY) == []
    fresh = record(3, "m", floor=2, id="fresh")
    assert await store.save_summary(KEY, fresh, replaces=None)
    assert path.read_bytes().count(b"\n") == 1


# ------------------------------------------------------------------- a lock in a file beside


@pytest.fixture
def lock_beside(monkeypatch):
    """The way of platforms on which an open file cannot be replaced."""
    for module in (file_lock, file_trimming):
        monkeypatch.setattr(module, "LOCKS_BESIDE", True)


@pytest.mark.usefixtures("lock_beside")
async def test_a_lock_in_a_file_beside_keeps_writers_apart(tmp_path):
    """Saves, trims and deletions of two stores on one chat."""
    async with FileChatStorage(tmp_path) as one, FileChatStorage(tmp_path) as two:
        stores = one, two
        saves = [stores[n % 2].save_chat_message(*IDS, user(n)) for n in range(40)]
        trims = [stores[n % 2].trim_chat(*IDS, 30) for n in range(4)]
        await asyncio.gather(*saves, *trims)
        assert [m.position for m in await one.fetch_chat(*IDS, 10)] == [*range(31, 41)]
        await two.delete_chat(*IDS)
        assert (await one.save_chat_message(*IDS, user("next")))[0].position == 41
        await one.delete_chat(*IDS)
        assert await two.purge(timedelta(0)) == 1
    assert not log_of(tmp_path).exists()


@pytest.mark.usefixtures("lock_beside")
async def test_reading_makes_no_lock_file(tmp_path):
    """Nor does what is asked of a chat that is not there."""
    async with FileChatStorage(tmp_path) as storage:
        assert await storage.delete_chat(*IDS) == 0
    assert await fetched(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
