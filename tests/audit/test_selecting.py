"""--since, --until and --grep: what they take, and that no part is taken for the whole."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from agent_memory import ChatKey, ConversationMessage, InMemoryChatStorage, InvalidRequestError
from agent_memory.audit import jsonl
from agent_memory.audit.chunks import DefaultIds, Tally
from agent_memory.audit.exporting import export, resume_at
from agent_memory.audit.log_pages import Hole
from agent_memory.audit.selection import WHOLE, Scope, Selection, select
from agent_memory.records import Note

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def at(moment, text="hi"):
    return ConversationMessage("user", text, timestamp=moment)


@pytest.mark.parametrize(
    ("since", "until", "taken"),
    [
        ("2026-11-30T12:00:00", None, True),
        ("2026-11-30T12:00:01", None, False),
        ("2026-11-30T13:00:00+01:00", None, True),
        ("2026-11-30T12:00:00-01:00", None, False),
        ("2026-11-30", "2026-11-30", True),
        (None, "2026-11-29", False),
        (None, "2026-11-30 12:00:00", True),
        (None, "2026-11-30T11:59:59Z", False),
        (None, "2026-11-30T12:00:00.500000", True),
        (None, "9999-12-31", True),
    ],
)
def test_times(since, until, taken):
    """Without an offset they are UTC, as times are shown; a day or second is included whole."""
    assert select(since, until, None).takes(at(NOON + timedelta(milliseconds=250))) is taken


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("yesterday", None, None), "--since is a date"),
        ((None, "2026-13-01", None), "--until is a date"),
        (("2026-11-30", "2026-11-29", None), "is before --since"),
        ((None, None, "\udc80"), "--grep is not valid Unicode text"),
    ],
)
def test_what_cannot_be_meant(options, problem):
    with pytest.raises(InvalidRequestError, match=problem):
        select(*options)


CALL = [{"toolUse": {"toolUseId": "t", "name": "book_hut", "input": {"where": "Höllental"}}}]
RESULT = [{"toolResult": {"toolUseId": "t", "content": [{"text": "Four BEDS"}]}}]


@pytest.mark.parametrize(
    ("grep", "found"),
    [("HUT", [1, 3]), ("höllen", [1]), ("beds", [2]), ("trip", [3]), (".*", [])],
)
def test_grep_finds_what_was_said_called_answered_and_noted(grep, found):
    """A plain text in upper or lower case."""
    items = [
        at(NOON),
        ConversationMessage("assistant", CALL),
        ConversationMessage("user", RESULT),
        Note("trip", {"to": "the hut"}),
    ]
    chosen = select(None, None, grep)
    assert [place for place, item in enumerate(items) if chosen.takes(item)] == found


def test_what_cannot_be_read_is_always_taken():
    """Nobody knows its time or what it said."""
    hole = Hole(ChatKey("u", "s", "a"), 3, 4, "position 3", "torn")
    assert select("2026-11-30", None, "x").takes(hole)
    assert not WHOLE
    assert Selection(grep="x")


async def _two_agents(storage):
    for second in range(6):
        moment = NOON + timedelta(seconds=second)
        agent = ("guide", "weather")[second % 2]
        text = f"line {second} {'sun' if second == 3 else 'rain'}"
        await storage.save_chat_message("ada", "hike", agent, at(moment, text))
    await storage.save_chat_message("ada", "other", "guide", at(NOON, "nothing of it"))


async def exported(form, selection=WHOLE):
    out = io.BytesIO()
    async with InMemoryChatStorage() as storage:
        await _two_agents(storage)
        done = await export(storage, Scope(), out, form, selection=selection)
    return done, out.getvalue().decode()


async def test_markdown_is_one_transcript_of_a_session():
    """As show has it: merged across agents, each message naming its own."""
    done, text = await exported("markdown")
    assert done.entries == 7
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "# hike",
        *[f"## {n // 2 + 1} · user · {('guide', 'weather')[n % 2]}" for n in range(6)],
        "# other",
        "## 1 · user",
    ]
    assert "User ada, agents guide, weather" in text


@pytest.mark.parametrize("form", ["jsonl", "openai", "openai-json", "markdown"])
async def test_a_part_says_that_it_is_one(form):
    """In each format; chats of which nothing is selected are not there."""
    selection = select("2026-11-30T12:00:01", None, "SUN")
    done, text = await exported(form, selection)
    assert done.entries == 1
    assert text.count("line") == text.count("line 3 sun") == 1
    assert "other" not in text
    if form == "markdown":
        assert "Not all of it: since 2026\\-11\\-30T12:00:01\\+00:00, grep SUN" in text
        return
    first = json.loads(text if form == "openai-json" else text.splitlines()[0])
    held = first[0] if form == "openai-json" else first
    assert held["selected"] == {"since": "2026-11-30T12:00:01+00:00", "grep": "SUN"}
    whole = (await exported(form))[1]
    assert "selected" not in whole


@pytest.mark.parametrize(
    "selection", [select(None, None, "line"), select("2026-11-30", None, None)]
)
async def test_a_part_is_not_imported_or_resumed(selection, tmp_path, capsys):
    """Not even one that happens to hold everything; nothing is written before that is known."""
    path = tmp_path / "part.jsonl"
    path.write_text((await exported("jsonl", selection))[1])
    assert '"ends"' not in path.read_text()
    with pytest.raises(InvalidRequestError, match="parts of chats"):
        resume_at(path)
    bad = next(jsonl.read(path, DefaultIds("nobody", "none"), Tally()))
    assert "an import needs a whole one" in bad.reason


@pytest.mark.parametrize("form", ["openai-json", "markdown", "jsonl"])
async def test_nothing_selected_is_a_valid_file(form):
    done, text = await exported(form, select(None, None, "hail"))
    assert done.entries == 0
    assert text == {"openai-json": "[]\n", "markdown": ""}.get(form, text)
    assert len(text.splitlines()) == (form != "markdown")
