"""What an auditor reads shows holes and notes where they are, and does not end well (C90)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sqlite3

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import (
    ConversationMessage,
    FileChatStorage,
    InMemoryChatStorage,
    InvalidRequestError,
    SqlChatStorage,
    SummarizingChatStorage,
    Usage,
)
from agent_memory.audit.chat_copy import chunks_of
from agent_memory.audit.chunks import DefaultIds
from agent_memory.audit.log_pages import Hole, each_of
from agent_memory.audit.sources import open_source
from agent_memory.audit.verification import digest_of
from agent_memory.cli.app import run as run_here
from agent_memory.records import Note
from agent_memory.summarizers import SlidingWindowSummarizer
from chats_to_move import IDS, moved, said

COUNT = 600
NOTE = Note("run", {"tokens": 3}, id="a-note")


async def fill(storage):
    """600 entries: messages m1 to m299, a note at 300, messages up to position 600."""
    await storage.save_chat_messages(*IDS, said(299))
    await storage.save_note(*IDS, NOTE)
    await storage.save_chat_messages(*IDS, said(300, start=301))


def made(path, *, summaries=False):
    async def make():
        async with SqlChatStorage(f"sqlite:///{path}") as storage:
            await fill(storage)
            if summaries:
                summarizer = SlidingWindowSummarizer(4)
                async with SummarizingChatStorage(
                    storage, summarizer, 4, 2, close_inner=False
                ) as short:
                    await short.fetch_chat(*IDS)

    asyncio.run(make())
    return f"sqlite:///{path}"


@pytest.fixture
def whole(tmp_path):
    """A store with nothing wrong."""
    return made(tmp_path / "chats.db")


def damage(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM agent_memory_entries WHERE position = 400")
        connection.execute("UPDATE agent_memory_entries SET body = '{' WHERE position = 500")
    connection.close()


@pytest.fixture(params=[False, True], ids=["raw", "summarized"])
def broken(request, tmp_path):
    """A store with position 400 deleted, and the body of 500 damaged, behind its back."""
    store = made(tmp_path / "chats.db", summaries=request.param)
    damage(tmp_path / "chats.db")
    return store


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = run_here(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def in_order(text, *parts):
    """Whether parts are in a text, one after the other."""
    at = -1
    for part in parts:
        at = text.find(part, at + 1)
        assert at >= 0, part
    return True


# --------------------------------------------------------------------------------- C90


def test_c90_show_marks_holes_and_notes(broken, run):
    """In their places, in words; exit code 1 and how many."""
    code, out, err = run("show", *IDS, "--store", broken)
    assert code == 1
    assert in_order(
        out, "say 299", "note  #300", 'run {"tokens": 3}', "say 301", "say 399", "hole  #400",
        "the store holds nothing there", "say 401", "say 499", "hole  #500", "unreadable record",
        "say 501",
    )  # fmt: skip
    assert out.count("hole  #") == 2
    assert "2 positions cannot be read" in err
    assert run("show", *IDS[:2], "--store", broken)[0] == 1


def test_c90_the_newest_messages_show_their_holes(broken, run):
    """--last counts messages; the holes and notes among them are there, others are not."""
    code, out, _ = run("show", *IDS, "--last", "150", "--store", broken)
    assert code == 1
    assert in_order(out, "say 450", "hole  #500", "say 600")
    assert "#400" not in out
    assert len(re.findall(r"say \d+", out)) == 150
    code, out, _ = run("show", *IDS, "--last", "50", "--store", broken)
    assert (code, "hole" in out) == (0, False)
    assert run("show", *IDS, "--last", "0", "--store", broken)[:2] == (0, "")


def test_c90_show_for_programs(broken, run):
    """Lines as export writes them, a hole's too."""
    code, out, _ = run("show", *IDS, "--json", "--store", broken)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [line["position"] for line in lines] == list(range(1, 601))
    assert [line["position"] for line in lines if "unreadable" in line] == [400, 500]
    assert lines[299]["entry"]["note"] == "run"


def test_c90_view_marks_holes_and_notes(broken, run):
    """Among what is stored, also where that is folded; exit code 1."""
    code, out, err = run("view", *IDS, "--store", broken)
    assert code == 1
    assert in_order(out, "note: run", "hole: cannot be read: the store", "hole: cannot be read")
    assert re.search(r"400 *│ hole", out)
    assert re.search(r"500 *│ hole", out)
    assert re.search(r"300 *│ note", out)
    assert "2 positions cannot be read" in err
    code, out, _ = run("view", *IDS, "--json", "--store", broken)
    told = json.loads(out)
    assert code == 1
    assert [(hole["first"], hole["last"]) for hole in told["holes"]] == [(400, 400), (500, 500)]
    assert told["notes"] == [{"position": 300, "note": "run", "id": "a-note"}]


def test_c90_report_marks_holes_and_notes(broken, run, tmp_path):
    """At the top of the chat and in their places, and the digest of the log is there."""
    path = tmp_path / "report.html"
    code, _, err = run("report", *IDS[:2], "-o", str(path), "--store", broken)
    html = path.read_text(encoding="utf-8")
    assert code == 1
    assert "Positions that cannot be read: #400, #500." in html
    assert in_order(
        html, 'id="m0-299"', 'class="message note" id="m0-300"', 'id="m0-399"',
        'class="message hole" id="m0-400"', 'id="m0-401"', 'id="m0-499"',
        'class="message hole" id="m0-500"', 'id="m0-501"',
    )  # fmt: skip
    assert "#400 cannot be read" in err
    code, out, _ = run("verify", "--digest", "--json", "--store", broken)
    assert json.loads(out.splitlines()[-2])["sha256"] in html


@pytest.mark.parametrize("form", ["jsonl", "openai", "openai-json", "markdown"])
def test_c90_each_export_marks_holes_and_notes(form, broken, run, tmp_path):
    """The file is whole, says where the holes and notes are, and the exit code is 1."""
    path = tmp_path / "out"
    code, _, err = run("export", *IDS, "--format", form, "-o", str(path), "--store", broken)
    text = path.read_text(encoding="utf-8")
    assert code == 1
    assert "2 positions cannot be read; each is marked" in err
    assert "#400 cannot be read" in err
    assert all(f"say {n}" in text for n in (1, 299, 301, 399, 401, 499, 501, 600))
    if form == "jsonl":
        lines = [json.loads(line) for line in text.splitlines()[1:-1]]
        assert [line["position"] for line in lines] == list(range(1, 601))
        assert [line["position"] for line in lines if "unreadable" in line] == [400, 500]
        assert lines[299]["entry"]["note"] == "run"
    elif form == "markdown":
        assert in_order(
            text, "## 299 ·", "## 300 · note", "## 399 ·", r"## \#400 · hole", "## 401 ·",
            r"## \#500 · hole", "## 501 ·",
        )  # fmt: skip
    else:
        chat = json.loads(text) if form == "openai" else json.loads(text)[0]
        said_there = [message["content"] for message in chat["messages"]]
        for mark, after in zip(chat["holes"], ("say 401", "say 501"), strict=True):
            assert said_there[mark["before"]] == after
        assert [mark["position"] for mark in chat["holes"]] == [400, 500]
        (note,) = chat["notes"]
        assert said_there[note["before"]] == "say 301"
        assert (note["position"], note["note"], note["data"]) == (300, "run", {"tokens": 3})


def test_a_position_taken_by_a_note_is_no_hole(whole, run, tmp_path):
    """With notes alone everything ends well."""
    assert run("verify", "--store", whole)[0] == 0
    for command in (["show", *IDS], ["view", *IDS], ["export", "--format", "markdown"]):
        code, out, err = run(*command, "--store", whole)
        assert (code, err) == (0, "")
        assert "hole" not in out
    assert "note  #300" in run("show", *IDS, "--store", whole)[1]
    report = tmp_path / "report.html"
    assert run("report", *IDS[:2], "-o", str(report), "--store", whole)[0] == 0
    assert "cannot be read" not in report.read_text(encoding="utf-8")


async def test_an_export_with_holes_is_imported_without_them(broken, run, tmp_path):
    """Each hole is a bad record with its line; what is there arrives."""
    path = tmp_path / "chats.jsonl"
    await asyncio.to_thread(run, "export", "-o", str(path), "--store", broken)
    seen = []
    source = await open_source(str(path), None, DefaultIds("imported", "agent"))
    target, done = await moved(source.stream, keep_going=True, on_bad=seen.append)
    assert (done.messages, done.notes, done.bad) == (597, 1, 2)
    assert [bad.location for bad in seen] == [f"{path}, line 401", f"{path}, line 501"]
    await target.aclose()


def test_many_missing_positions_are_one_line_and_an_export_is_resumed_behind_them(
    whole, run, tmp_path
):
    """Of the same size however many they are; --resume does not tell them twice."""
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        connection.execute("DELETE FROM agent_memory_entries WHERE position BETWEEN 100 AND 199")
    connection.close()
    path = tmp_path / "out"
    code, _, err = run("export", "-o", str(path), "--store", whole)
    assert code == 1
    assert "100 positions cannot be read" in err
    lines = path.read_bytes().splitlines(keepends=True)
    hole = json.loads(lines[100])
    assert (hole["position"], hole["through"]) == (100, 199)
    whole_text = b"".join(lines)
    for count in (100, 101, 102):
        path.write_bytes(b"".join(lines[:count]))
        run("export", "-o", str(path), "--resume", "--store", whole)
        assert path.read_bytes() == whole_text
    assert "hole  #100 to #199" in run("show", *IDS, "--store", whole)[1]


async def test_the_end_of_a_log_and_other_stores(tmp_path):
    """Missing at the end; a damaged line of a file; a chat that is trimmed meanwhile."""
    async with SqlChatStorage(f"sqlite:///{tmp_path}/chats.db") as storage:
        await storage.save_chat_messages(*IDS, said(5))
        (info,) = [info async for info in storage.list_chats()]
        with sqlite3.connect(tmp_path / "chats.db") as connection:
            connection.execute("DELETE FROM agent_memory_entries WHERE position > 3")
        connection.close()
        items = [item async for item in each_of(storage, info)]
        assert [(item.first, item.last) for item in items if isinstance(item, Hole)] == [(4, 5)]
        await storage.delete_chat(*IDS)
        assert [item async for item in each_of(storage, info)] == []
    async with FileChatStorage(tmp_path / "files") as storage:
        await storage.save_chat_messages(*IDS, said(5))
        (path,) = (tmp_path / "files").rglob("*.jsonl")
        path.write_bytes(path.read_bytes().replace(b'"say 3"', b'"say 3'))
        (info,) = [info async for info in storage.list_chats()]
        items = [item async for item in each_of(storage, info)]
        assert [item.first for item in items if isinstance(item, Hole)] == [3]
        assert len(items) == 5


# ------------------------------------------------------------------------------ digests


@pytest.fixture(params=["memory", "file", "sqlite"])
async def target(request, tmp_path):
    make = {
        "memory": InMemoryChatStorage,
        "file": lambda: FileChatStorage(tmp_path / "target"),
        "sqlite": lambda: SqlChatStorage(f"sqlite:///{tmp_path}/target.db"),
    }[request.param]
    async with make() as storage:
        yield storage


async def digests(storage, through=None):
    return {
        info.key: await digest_of(storage, info, through=through)
        async for info in storage.list_chats()
    }


async def test_a_digest_is_the_same_on_every_store(target):
    """After a copy all are equal, those of content that is hard to carry too."""
    from chats_to_move import fill as fill_all  # noqa: PLC0415

    async with InMemoryChatStorage() as source:
        await fill_all(source)
        await moved(chunks_of(source), target)
        expected = await digests(source)
        assert await digests(target) == expected
    assert len({digest.sha256 for digest in expected.values()}) == 3
    assert {(digest.floor, digest.last, digest.holes) for digest in expected.values()} == {
        (0, 31, 0), (0, 7, 0), (0, 3, 0),
    }  # fmt: skip


async def test_yesterday_s_digest_is_computed_again(target):
    """Through its last position, whatever was appended since; not once that was trimmed."""
    await target.save_chat_messages(*IDS, said(5))
    (before,) = (await digests(target)).values()
    await target.save_chat_messages(*IDS, said(5, start=6))
    (now,) = (await digests(target)).values()
    assert now != before
    assert (await digests(target, 5)).popitem()[1] == before
    assert (await digests(target, 99)).popitem()[1] == now
    await target.trim_chat(*IDS, 7)
    (trimmed,) = (await digests(target, 5)).values()
    assert (trimmed.floor, trimmed.last) == (3, 5)
    assert trimmed.sha256 != before.sha256
    await target.trim_chat(*IDS, 5)
    with pytest.raises(InvalidRequestError, match="up to 5 was trimmed"):
        await digests(target, 5)


async def test_a_trimmed_chat_keeps_its_digest_when_it_is_copied(target):
    """Positions begin at 1 in the copy; floor and order tell them."""
    async with InMemoryChatStorage() as source:
        await source.save_chat_messages(*IDS, said(9))
        await source.trim_chat(*IDS, 4)
        await moved(chunks_of(source), target)
        (old,), (new,) = [(await digests(s)).values() for s in (source, target)]
    assert (old.floor, old.last, new.floor, new.last) == (5, 9, 0, 4)
    assert old.sha256 == new.sha256


TEXTS = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
MESSAGES = st.builds(
    ConversationMessage,
    st.sampled_from(["user", "assistant", "system", "tool"]),
    st.lists(st.dictionaries(TEXTS, VALUES, max_size=2), max_size=2) | TEXTS,
    run_id=st.none() | st.just("run"),
    pinned=st.booleans(),
    usage=st.none() | st.builds(Usage, st.integers(0, 9)),
    extra=st.dictionaries(TEXTS, VALUES, max_size=2),
    metadata=st.dictionaries(TEXTS, VALUES, max_size=2),
)


def digest_in_memory(messages):
    async def work():
        async with InMemoryChatStorage() as storage:
            await storage.save_chat_messages(*IDS, messages)
            return (await digests(storage)).popitem()[1].sha256

    return asyncio.run(work())


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_any_change_of_any_field_changes_the_digest(messages, data):
    """Each field of each message, and their order, are in it; equal logs have equal digests."""
    before = digest_in_memory(messages)
    assert digest_in_memory([attrs.evolve(message) for message in messages]) == before
    index = data.draw(st.integers(0, len(messages) - 1))
    message, other = messages[index], data.draw(MESSAGES)
    name = data.draw(st.sampled_from(["role", "content", "id", "timestamp", "run_id", "pinned",
                                      "usage", "extra", "metadata"]))  # fmt: skip
    changed = attrs.evolve(message, **{name: getattr(other, name)})
    if repr(getattr(changed, name)) == repr(getattr(message, name)):
        return
    replaced = [*messages[:index], changed, *messages[index + 1 :]]
    assert digest_in_memory(replaced) != before
    if len(messages) > 1:
        assert digest_in_memory(messages[::-1]) != before


def test_verify_tells_digests(whole, run, tmp_path):
    """With floor and last position; --through those of then; a hole is in the digest."""
    code, out, _ = run("verify", "--digest", "--store", whole)
    (line,) = [line for line in out.splitlines() if line.startswith("sha256 ")]
    assert code == 0
    assert re.fullmatch(r"sha256 [0-9a-f]{64}  floor 0, last 600  user 'ada', .*", line)

    def digest(*options):
        code, out, _ = run("verify", *IDS, "--digest", "--json", *options, "--store", whole)
        return code, json.loads(out.splitlines()[-2])

    _, before = digest("--through", "350")
    damage(tmp_path / "chats.db")
    code, now = digest()
    assert code == 1
    assert (now["holes"], now["last"]) == (2, 600)
    assert now["sha256"] != line.split()[1]
    assert digest("--through", "350")[1] == before
    assert before["last"] == 350
    assert run("verify", "--through", "3", "--store", whole)[0] == 2
    asyncio.run(_trim(whole))
    code, out, _ = run("verify", "--digest", "--through", "350", "--store", whole)
    assert code == 1
    assert "was trimmed" in out


async def _trim(store):
    async with SqlChatStorage(store) as storage:
        await storage.trim_chat(*IDS, 50)


def test_a_digest_can_be_computed_without_this_library(broken, run, tmp_path):
    """From an export, as docs/audit.md says."""
    path = tmp_path / "chats.jsonl"
    run("export", *IDS, "-o", str(path), "--store", broken)
    digest = hashlib.sha256(b"agent-memory log 1\n" + json.dumps(IDS).encode() + b"\n")
    for line in path.read_bytes().splitlines()[1:-1]:
        _, is_entry, text = line.partition(b',"entry":')
        digest.update((text[:-1] if is_entry else b"null") + b"\n")
    _, out, _ = run("verify", "--digest", "--json", "--store", broken)
    assert json.loads(out.splitlines()[-2])["sha256"] == digest.hexdigest()


async def test_notes_and_positions_do_not_change_what_is_exported_for_a_model(tmp_path):
    """Notes within tool exchanges part nothing: the messages are as without them."""
    import io  # noqa: PLC0415

    from agent_memory.audit.exporting import export  # noqa: PLC0415
    from agent_memory.audit.selection import Scope  # noqa: PLC0415

    calls = [
        ConversationMessage("assistant", None, extra={
            "type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"})
        for n in range(2)
    ]  # fmt: skip
    results = [
        ConversationMessage("tool", None, extra={
            "type": "function_call_output", "call_id": f"c{n}", "output": "four beds"})
        for n in range(2)
    ]  # fmt: skip
    texts = []
    for with_notes in (False, True):
        async with InMemoryChatStorage() as storage:
            for number, message in enumerate([*said(1), *calls, *results, *said(1, start=2)]):
                await storage.save_chat_message(*IDS, message)
                if with_notes:
                    await storage.save_note(*IDS, Note("run", {"n": number}))
            out = io.BytesIO()
            await export(storage, Scope(), out, "openai")
            texts.append(json.loads(out.getvalue()))
    assert texts[0]["messages"] == texts[1]["messages"]
    assert [note["data"]["n"] for note in texts[1]["notes"]] == list(range(6))
