"""The lossless file: everything comes back, from any cut, and damage is told."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import ChatKey, FileChatStorage, InMemoryChatStorage, InvalidRequestError
from agent_memory.audit.chunks import DefaultIds, Tally
from agent_memory.audit.exporting import export, resume_at
from agent_memory.audit.findings import BadRecordError
from agent_memory.audit.log_pages import in_thread
from agent_memory.audit.selection import Scope
from agent_memory.audit.sources import read_file
from chats_to_move import HOSTILE, IDS, everything, fill, moved, odd_messages, records, said, user
from histories import histories

KEY = ChatKey(*IDS)


@pytest.fixture
async def source():
    async with InMemoryChatStorage() as storage:
        await fill(storage)
        yield storage


async def exported(storage, scope=Scope(), **options):  # noqa: B008  (a value)
    out = BytesIO()
    done = await export(storage, scope, out, "jsonl", **options)
    return out.getvalue(), done


def read(path):
    return read_file(path, "jsonl", DefaultIds("nobody", "none"), Tally())


async def imported(path, target=None, **options):
    return await moved(in_thread(read(path)), target, **options)


async def test_everything_comes_back(source, tmp_path):
    """Messages, notes, positions and summaries: the store made of the file is the same."""
    path = tmp_path / "chats.jsonl"
    text, done = await exported(source)
    path.write_bytes(text)
    target, moved_ = await imported(path)
    assert await everything(target) == await everything(source)
    assert await records(target) == await records(source) != []
    assert done.entries == moved_.messages + moved_.notes == 41
    again, _ = await exported(target)
    assert again == text
    await target.aclose()


@given(histories("anthropic"), st.sampled_from(["a", "A", "é", "x/y\n"]))
def test_any_history_comes_back(tmp_path_factory, history, name):
    """Whatever a chat holds, the file gives it back."""

    async def there_and_back():
        path = tmp_path_factory.mktemp("export") / "x.jsonl"
        async with InMemoryChatStorage() as source:
            await source.save_chat_messages(name, name, name, history)
            path.write_bytes((await exported(source))[0])
            target, _ = await imported(path)
            assert await everything(target) == await everything(source)

    asyncio.run(there_and_back())


async def test_lines_are_for_other_tools_too(source):
    """Every line is one JSON object that names its chat, with nothing a terminal obeys."""
    lines = (await exported(source))[0].decode().splitlines()
    assert json.loads(lines[0]) == {"v": 1, "export": "agent-memory"}
    assert all(json.loads(line)["chat"] for line in lines[1:])
    assert not any(character in line for line in lines for character in "\x1b\x9b\u202e\x7f")
    assert any(json.loads(line).get("entry", {}).get("content") == HOSTILE for line in lines)


async def test_scopes(source):
    """A user's chats, a session's, or one; ids in the wrong order are refused."""
    counts = [
        (await exported(source, scope))[1].entries
        for scope in (Scope("ada"), Scope("ada", "hike"), Scope(*IDS), Scope("nobody"))
    ]
    assert counts == [38, 38, 31, 0]
    with pytest.raises(InvalidRequestError, match="in this order"):
        Scope(None, "hike")


@pytest.mark.parametrize("keep", [0.02, 0.3, 0.5, 0.77, 0.999, 1.0])
async def test_an_interrupted_export_is_resumed(source, tmp_path, keep):
    """Cut anywhere, the file becomes byte for byte what it would have been."""
    path = tmp_path / "chats.jsonl"
    text, _ = await exported(source)
    path.write_bytes(text[: max(40, int(len(text) * keep))])
    since = resume_at(path)
    rest, _ = await exported(source, since=since)
    assert path.read_bytes() + rest == text


async def test_every_cut_between_lines_is_resumed(source, tmp_path):
    """Also where a chat has just ended or begun."""
    path = tmp_path / "chats.jsonl"
    text, _ = await exported(source)
    lines = text.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]) + b'{"v":1,"to')
        rest, _ = await exported(source, since=resume_at(path))
        assert path.read_bytes() + rest == text


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"v":1,"export":"agent-memory"}\nhello\n'])
def test_what_is_no_export_is_not_resumed(tmp_path, content):
    """A file of something else is left as it is."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="cannot be resumed"):
        resume_at(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: [*lines[:2], b"{nonsense", *lines[3:]], "line 3: unreadable record"),
        (lambda lines: lines[:2] + lines[3:], "line 3: 1 lines of the chat are missing before it"),
        (lambda lines: lines[:10], "line 10: the file ends in the middle of the chat of"),
        (lambda lines: lines[:10] + lines[-3:], "line 11: the lines before it lack the end"),
        (lambda lines: [lines[0], b'{"v":1,"chat":["a","b"],"position":1}'], "line 2: no line of"),
        (lambda lines: [lines[1].replace(b'"role":"user"', b'"role":"robot"')], "role must be"),
        (lambda lines: [lines[1].replace(b'"m1"', b'""')], "id must not be empty"),
        (lambda lines: [lines[1].replace(b'"say 1"', b"NaN")], "floats must be finite"),
        (lambda lines: [lines[1].replace(b'{"v":1', b'{"v":9', 1)], "version 9"),
        (lambda lines: [lines[1].replace(b'"entry":{"v":1', b'"entry":{"v":9')], "newer version"),
        (lambda _: [b'{"v":1,"chat":["a","b","c"],"position":2,"unreadable":"row 7"}'], "row 7"),
    ],
)  # fmt: skip
async def test_damage_is_told(source, tmp_path, damage, told):
    """A line that is torn, missing, hostile or of a newer release is told with its number."""
    path = tmp_path / "chats.jsonl"
    lines = (await exported(source))[0].splitlines()
    path.write_bytes(b"\n".join(damage(lines)) + b"\n")
    with pytest.raises(BadRecordError) as caught:
        await imported(path)
    assert str(caught.value).startswith(f"{path}, line ")
    assert told in str(caught.value)
    seen = []
    target, done = await imported(path, keep_going=True, on_bad=seen.append)
    assert done.bad == len(seen) > 0
    await target.aclose()


async def test_a_bad_line_costs_only_itself(source, tmp_path):
    """With keep_going everything else of the file is stored."""
    path = tmp_path / "chats.jsonl"
    lines = (await exported(source))[0].splitlines()
    lines[4] = b"\xff\xfe"
    path.write_bytes(b"\n".join(lines))
    target, done = await imported(path, keep_going=True)
    assert (done.messages + done.notes, done.bad) == (40, 1)
    await target.aclose()


async def test_what_the_store_cannot_read_is_told_and_marked(tmp_path):
    """The export tells of it and goes on; the import of the file knows that it was there."""
    async with FileChatStorage(tmp_path / "chats") as storage:
        await storage.save_chat_messages(*IDS, said(3))
    (log,) = (tmp_path / "chats").rglob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = b"x" * (len(lines[2]) - 1) + b"\n"
    log.write_bytes(b"".join(lines))
    path, told = tmp_path / "chats.jsonl", []
    async with FileChatStorage(tmp_path / "chats") as storage:
        text, done = await exported(storage, on_hole=told.append)
    path.write_bytes(text)
    assert done.bad == len(told) > 0
    seen = []
    target, _ = await imported(path, keep_going=True, on_bad=seen.append)
    assert len(seen) == done.bad
    await target.aclose()


async def test_odd_messages_come_back(tmp_path):
    """Bytes, huge integers, lone surrogates, every field."""
    path, messages = tmp_path / "x.jsonl", odd_messages()
    async with InMemoryChatStorage() as storage:
        await storage.save_chat_messages(*IDS, messages)
        path.write_bytes((await exported(storage))[0])
    target, _ = await imported(path)
    assert await target.fetch_chat(*IDS) == messages
    await target.aclose()


def test_a_long_export_is_read_in_bounded_chunks(tmp_path):
    """However long a chat is, and however large its messages: a save's worth at a time."""

    async def lengths(count, size):
        async with InMemoryChatStorage() as storage:
            await storage.save_chat_messages(*IDS, [user("x" * size) for _ in range(count)])
            path = tmp_path / "x.jsonl"
            path.write_bytes((await exported(storage))[0])
            return [len(chunk.entries) for chunk in read(path)]

    for count, size in ((2_000, 10), (40, 500_000)):
        found = asyncio.run(lengths(count, size))
        assert sum(found) == count
        assert max(found) <= 501
        assert max(found) * size < 6_000_000
