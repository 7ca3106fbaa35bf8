"""The command line at its edges: files that are not whole, other locales, URLs with passwords."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest
from executable import run, with_store

import matrix
from agent_memory import ConversationMessage, StorageUnavailableError
from agent_memory.audit.chunks import ExportWriter
from agent_memory.cli.app import COMMANDS
from agent_memory.cli.app import run as run_here

SECRET = "hunter2"
ARGUMENTS = {
    "demo": [],
    "ls": [],
    "show": ["u", "s"],
    "view": ["u", "s", "a"],
    "history": ["u", "s", "a"],
    "stats": [],
    "verify": ["--digest"],
    "export": ["-o", "out.jsonl"],
    "import": ["chats.jsonl"],
    "copy": None,
    "report": ["u", "s", "-o", "r.html"],
    "delete": ["u", "--yes"],
    "prune": ["--older-than", "1d", "--yes"],
}
URLS = [
    f"nosuch://bob:{SECRET}@h/db",
    f"bob:{SECRET}@h/db",
    f"//bob:{SECRET}@h/db",
    f"postgresql://bob:{SECRET}@127.0.0.1:1/db",
    f"postgresql://bob@127.0.0.1:1/db?password={SECRET}",
    f"mysql://bob:{SECRET}@127.0.0.1:1/db",
    f"mysql://bob:{SECRET}@127.0.0.1:x/db",
    f"dynamodb://table?nonsense=1&secret={SECRET}",
    f"dynamodb://table?endpoint=http://bob:{SECRET}@127.0.0.1:1",
    f"sqlite://bob:{SECRET}@h/chats.db",
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("AGENT_MEMORY_STORE", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "nothing")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


# --------------------------------------------------------------------------------- C92


def test_c92_an_export_that_finds_nothing_leaves_no_file(small, capsys):
    """The corrected command works then, and says how much it wrote."""
    assert run_here(["export", "nobody", "-o", "q.jsonl", "--store", small]) == 1
    assert list(Path().iterdir()) == []
    assert run_here(["export", "ada", "-o", "q.jsonl", "--store", small]) == 0
    assert capsys.readouterr().out.startswith("q.jsonl: 38 entries, ")
    assert [path.name for path in Path().iterdir()] == ["q.jsonl"]


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_c92_a_file_has_its_name_when_it_is_whole(form, small, monkeypatch, capsys):
    """What is interrupted leaves a part to go on with, or nothing; an old file stays."""
    whole = ["export", "--format", form, "-o", "q", "--store", small]
    assert run_here(whole) == 0
    expected = Path("q").read_bytes()
    Path("q").write_bytes(b"old")
    write, written = ExportWriter.write, []

    def failing(writer, text, *counts):
        written.append(text)
        if len(written) == 20:
            raise StorageUnavailableError("the connection is gone")
        write(writer, text, *counts)

    with monkeypatch.context() as patch:
        patch.setattr(ExportWriter, "write", failing)
        assert run_here([*whole, "--force"]) == 1
    assert Path("q").read_bytes() == b"old"
    assert Path("q.part").exists() == (form == "jsonl")
    Path("q").unlink()
    assert run_here([*whole, *(["--resume"] if form == "jsonl" else [])]) == 0
    assert Path("q").read_bytes() == expected
    assert [path.name for path in Path().iterdir()] == ["q"]


def test_a_device_is_written_to_as_it_is(small, capsys):
    """It is not replaced by a file."""
    assert run_here(["export", "-o", "/dev/null", "--force", "--store", small]) == 0
    assert Path("/dev/null").is_char_device()
    assert not Path("/dev/null.part").exists()


# --------------------------------------------------------------------------------- C93


def test_c93_ids_are_found_in_a_locale_without_them(tmp_path):
    """What was typed is UTF-8, also where Python takes the terminal for one of ASCII."""
    store = f"sqlite:///{tmp_path}/chats.db"
    message = ConversationMessage("user", "hallo")
    with_store(store, lambda s: s.save_chat_message("é漢", "😀", "ü", message))
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    ended = run("show", "é漢", "😀", "ü", "--store", store, **locale)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "hallo" in ended.stdout
    missing = run("verify", "ä", "--store", store, **locale)
    assert "holds no chat of user '\\xe4'" in missing.stderr


# -------------------------------------------------------------------------------- C102


def test_every_command_is_here():
    assert set(ARGUMENTS) == set(COMMANDS)


SLOW = [url for url in URLS if "127.0.0.1:1" in url and url.startswith(("postgresql", "mysql"))]


@pytest.mark.parametrize(
    ("command", "url"),
    matrix.params(
        list(itertools.product(sorted(ARGUMENTS), URLS)),
        # A server that does not answer is asked again for a while.
        always=[
            (command, url)
            for command, url in itertools.product(sorted(ARGUMENTS), URLS)
            if url not in SLOW or command == "ls"
        ],
    ),
)
def test_c102_no_command_shows_a_secret(command, url, monkeypatch, capsys, caplog):
    """As the store, as a source, in the variable, in a wrong place; in output, errors and log."""
    caplog.set_level(logging.DEBUG)
    Path("chats.jsonl").write_text(json.dumps({"role": "user", "content": "hi"}) + "\n")
    arguments = ARGUMENTS[command]
    calls = [
        *([[*arguments, "--store", url]] if arguments is not None else []),
        *([[url, "memory:"], ["memory:", url]] if command == "copy" else []),
        *([[url, "--store", "memory:"]] if command == "import" else []),
        *([[]] if command == "ls" else []),
        [f"--nonsense={url}"],
        [url, url, url, url, url],
    ]
    monkeypatch.setenv("AGENT_MEMORY_STORE", url)
    for call in calls:
        code = run_here([command, *call])
        output = capsys.readouterr()
        assert code in (1, 2), call
        assert output.err
        assert SECRET not in output.out + output.err + caplog.text, call


# ----------------------------------------------------------------------------- looking


@pytest.mark.parametrize(
    "command", [["view", "ada", "hike", "guide"], ["report", "ada", "hike", "-o", "r.html"]]
)
def test_looking_gives_no_advice_about_summarizers(command, small, capsys, caplog):
    """There is none: the view is the one that is stored."""
    assert run_here([*command, "--store", small]) == 0
    assert capsys.readouterr().err == ""
    assert caplog.records == []
