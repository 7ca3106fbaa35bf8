"""--since, --until and --grep on the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from executable import done, with_store

from agent_memory import ConversationMessage
from agent_memory.cli.app import run as run_here

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def chats(tmp_path):
    """Ten seconds of talk, by two agents in turn."""
    url = f"sqlite:///{tmp_path}/chats.db"

    async def fill(storage):
        for second in range(10):
            message = ConversationMessage(
                "user",
                f"line {second} of {'Rain' if second % 3 else 'sun'}",
                timestamp=NOON + timedelta(seconds=second),
            )
            await storage.save_chat_message("ada", "hike", "ab"[second % 2], message)

    with_store(url, fill)
    return url


def lines(text):
    return [int(word) for word in text.split("line ")[1:] for word in word.split()[:1]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--grep", "rain"], [1, 2, 4, 5, 7, 8]),
        (["--grep", "rain", "--last", "2"], [7, 8]),
        (["--grep", "rain", "--last", "0"], []),
        (["--since", "2026-11-30T12:00:07"], [7, 8, 9]),
        (["--until", "2026-11-30T13:00:01+01:00"], [0, 1]),
        (["--since", "2026-11-30T12:00:03", "--until", "2026-11-30", "--grep", "SUN"], [3, 6, 9]),
    ],
)
def test_show(options, expected, chats):
    """Across agents; with --last the newest of those that are selected."""
    shown = done("show", "ada", "hike", *options, "--store", chats)
    assert lines(shown) == expected
    plain = done("show", "ada", "hike", *options, "--store", chats, "--json")
    assert lines(plain) == expected


def test_show_says_where_nothing_is_selected(chats, capsys):
    """That is no error: the chat is there."""
    assert run_here(["show", "ada", "hike", "--grep", "hail", "--store", chats]) == 0
    assert capsys.readouterr().err == "nothing is selected\n"


def test_a_time_as_it_is_shown_selects_its_message(chats):
    """What show and ls print can be given back."""
    shown = done("show", "ada", "hike", "--last", "1", "--store", chats)
    moment = " ".join(shown.splitlines()[0].split()[-2:])
    again = done("show", "ada", "hike", "--since", moment, "--until", moment, "--store", chats)
    assert lines(again) == [9]


def test_export(chats, tmp_path, monkeypatch, capsys):
    """A part is never resumed, and no import takes it for a chat."""
    monkeypatch.chdir(tmp_path)
    part = ["export", "-o", "part.jsonl", "--grep", "rain", "--store", chats]
    assert done(*part).startswith("part.jsonl: 6 entries, ")
    assert run_here([*part, "--resume"]) == 2
    assert "does not take --since, --until or --grep" in capsys.readouterr().err
    assert run_here(["import", "part.jsonl", "--store", "sqlite:///new.db"]) != 0
    assert "an import needs a whole one" in capsys.readouterr().err
    if Path("new.db").exists():
        assert done("ls", "--json", "--store", "sqlite:///new.db") == ""
    text = done(
        "export", "--format", "markdown", "--since", "2026-11-30T12:00:08", "--store", chats
    )
    assert lines(text) == [8, 9]
