"""The demo, run as people run it: the real command in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from executable import AIRLINE

import agent_memory
import matrix
from agent_memory.cli.app import run as run_here

ROOT = Path(agent_memory.__file__).parents[1]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(autouse=True)
def _in_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, code: str | None = None, **environment: str):
    """Run the command line, or a piece of Python in its place, with nobody at the terminal."""
    command = ["-m", "agent_memory", *arguments] if code is None else ["-c", code, *arguments]
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


@pytest.fixture
def result_of(capsys):
    """The demo's outcome as JSON, run in this process, which is quicker."""

    def result_of(*arguments: str):
        exit_code = run_here(["demo", "--json", *arguments])
        output = capsys.readouterr()
        assert (exit_code, output.err) == (0, "")
        return json.loads(output.out)

    return result_of


@pytest.fixture
def shown(capsys):
    """The demo's exit code and outputs, run in this process, with nobody at the terminal."""

    def shown(*arguments: str):
        exit_code = run_here(["demo", *arguments])
        output = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, exit_code, output.out, output.err)

    return shown


def test_the_demo_shows_and_proves(tmp_path):
    """Without options: sizes, the summary, the proof, a progress bar beside the output, exit 0."""
    done = run("demo", TMPDIR=str(tmp_path), FORCE_COLOR="1", NO_COLOR="1")
    assert done.returncode == 0
    assert "demo-skerrow-census" in done.stdout
    assert "Summary of the earlier conversation" in done.stdout
    assert "closed, reopened and read" in done.stdout
    assert done.stdout.count("OK ") == 3
    assert "156 messages, " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_figures_for_machines(result_of):
    """With --json nothing but JSON is written, and the figures fit together."""
    result = result_of()
    (one,) = result["conversations"]
    assert result["reopened"] is True
    assert (result["exchanges_split"], result["faults"]) == ([], [])
    assert result["messages"] == one["messages"] == result["views_checked"] == 156
    assert one["view_messages"] < one["messages"]
    assert one["view_tokens"] < one["tokens"]
    assert one["tokens_read"] < one["tokens_unshortened"]
    assert one["compactions"] > 1
    assert one["summary"]


def test_it_tells_what_became_of_each_message(result_of):
    """From ``explain``: pinned first, then covered by one summary after another, then verbatim."""
    (one,) = result_of()["conversations"]
    standing = one["standing"]
    assert standing[0] == "1: pinned"
    assert re.fullmatch(r"\d+ to 156: verbatim", standing[-1])
    covered = [re.fullmatch(r".*: covered by summary (\d+) of (\d+)", s) for s in standing[1:-1]]
    count = one["compactions"]
    assert [(int(m[1]), int(m[2])) for m in covered] == [(n, count) for n in range(1, count + 1)]


@pytest.mark.skipif(not AIRLINE.exists(), reason=f"the real conversations are not at {AIRLINE}")
def test_real_conversations(result_of):
    """42 conversations of a real agent: every message comes back equal, no view splits."""
    result = result_of("--input", str(AIRLINE))
    assert len(result["conversations"]) == 42
    assert result["messages"] == result["views_checked"] == 1064
    assert (result["exchanges_split"], result["faults"]) == ([], [])
    assert any(one["summary"] for one in result["conversations"])


@pytest.mark.skipif(not AIRLINE.exists(), reason=f"the real conversations are not at {AIRLINE}")
@pytest.mark.parametrize(
    ("trigger_at", "keep_last"),
    [(2, 1), *(pytest.param(*counts, marks=pytest.mark.matrix) for counts in ((3, 2), (6, 1)))],
)
def test_real_conversations_cut_short(result_of, trigger_at, keep_last):
    """Even where the summarizer is called all the time, nothing is lost or split."""
    arguments = ("--trigger-at", str(trigger_at), "--keep-last", str(keep_last))
    result = result_of("--input", str(AIRLINE), "--store", "memory:", *arguments)
    assert (result["exchanges_split"], result["faults"]) == ([], [])
    assert sum(one["compactions"] for one in result["conversations"]) > 42


def timeless(result):
    """The conversations, without the times that a summary says its messages are from."""
    times = r"\d{4}-\d\d-\d\d \d\d:\d\d to .*? UTC"
    return [
        {**one, "summary": re.sub(times, "", one["summary"])} for one in result["conversations"]
    ]


@pytest.mark.parametrize(
    "url",
    matrix.params(
        ["memory:", "sqlite://", "file:{}/chats", "sqlite:///{}/c.db"],
        always=["memory:", "sqlite:///{}/c.db"],
    ),
)
def test_any_store(result_of, url, tmp_path):
    """The same comes out of every store; a second run on it does not meet the first."""
    url = url.format(tmp_path)
    first, second = result_of("--store", url), result_of("--store", url)
    assert timeless(first) == timeless(second) == timeless(result_of())
    assert first["user_id"] != second["user_id"]
    assert first["reopened"] is (str(tmp_path) in url)


def test_postgresql(postgres_url, shown):
    """On a server the demo works too, and shows its URL without the password."""
    done = shown("--store", postgres_url)
    assert (done.returncode, done.stdout.count("OK ")) == (0, 3)
    password = re.search(r"://[^:/@]*:([^@]+)@", postgres_url)
    assert password is None or password[1] not in done.stdout + done.stderr


def hostile(tmp_path) -> Path:
    text = "\x1b]0;owned\x07\x1b[2Jhello\rHELLO\x9b31m [bold]x[/bold] :smile: \u202e 42 euros."
    messages = [
        {"role": role, "content": f"{text} Message {number}."}
        for number in range(30)
        for role in ("user", "assistant")
    ]
    file = tmp_path / "hostile.jsonl"
    file.write_text(json.dumps({"id": f"id{text}", "messages": messages}))
    return file


def test_escape_sequences_are_shown_and_never_obeyed(tmp_path):
    """Content that would command the terminal, or the library that draws, is plain text."""
    done = run("demo", "--input", str(hostile(tmp_path)))
    assert done.returncode == 0
    assert not CONTROL.search(done.stdout)
    assert "␛]0;owned␇␛[2J" in done.stdout
    assert "[bold]x[/bold] :smile:" in done.stdout
    assert "\u202e" not in done.stdout


def test_escape_sequences_for_machines(tmp_path, shown):
    """JSON holds the content as it is, escaped."""
    done = shown("--json", "--input", str(hostile(tmp_path)))
    assert not CONTROL.search(done.stdout)
    assert "\x1b[2J" in json.loads(done.stdout)["conversations"][0]["summary"]


def test_a_terminal_that_knows_ascii_only():
    """What the terminal's encoding does not know is written as a code; the demo does not fail."""
    done = run("demo", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        (["nonsense"], 2, "nonsense"),
        (["demo", "--nonsense"], 2, "--nonsense"),
        (["demo", "--trigger-at", "x"], 2, "Invalid value for '--trigger-at'"),
        (["demo", "--trigger-at", "1"], 2, "trigger_at must be"),
        (["demo", "--trigger-at", "4", "--keep-last", "4"], 2, "must be below trigger_at"),
        (["demo", "--input", "missing.jsonl"], 2, "missing.jsonl"),
        (["demo", "--input", "bad.jsonl"], 2, "bad.jsonl, line 2: "),
        (["demo", "--store", "chats.db"], 2, "sqlite:///chats.db"),
        (["demo", "--store", "sqlite:///no/such/place/chats.db"], 1, "no/such/place"),
        (["demo", "--store", "file:bad.jsonl"], 2, "bad.jsonl"),
        (["demo", "--store", "postgresql://me:hunter2@127.0.0.1:1/db"], 1, "not available"),
    ],
)
def test_an_error_is_one_line(arguments, exit_code, told, capsys):
    """Exit code 2 for what was asked wrongly, 1 for what went wrong; one line; no traceback."""
    Path("bad.jsonl").write_text('{"id": "a", "messages": []}\n{"id":')
    assert run_here(arguments) == exit_code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("agent-memory: ")
    assert told in output.err
    assert len(output.err.splitlines()) == 1
    assert not re.search("Traceback|unexpected|hunter2", output.err)


def test_a_hostile_error_is_one_line(tmp_path, shown):
    """What an error quotes of a file cannot command the terminal or fill it with lines."""
    file = tmp_path / "bad.jsonl"
    role = "\x1b[2J\nrobot"
    file.write_text(json.dumps({"id": "a", "messages": [{"role": role, "content": ""}]}))
    done = shown("--input", str(file))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not CONTROL.search(done.stderr.removesuffix("\n"))


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra(package):
    """Where typer or rich is missing, one line names the extra."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from agent_memory.cli import main; main()"
    )
    done = run("demo", code=code)
    assert done.returncode == 1
    assert done.stderr == (
        f"agent-memory: '{package}' is not installed; "
        "install it with: pip install 'agent-memory-storage[cli]' "
        "(in a checkout: pip install '.[cli]')\n"
    )


def test_without_a_driver():
    """Where a store's extra is missing, one line names it."""
    code = "import sys; sys.modules['asyncpg'] = None; from agent_memory.cli import main; main()"
    done = run("demo", "--store", "postgresql://host/db", code=code)
    assert done.returncode == 1
    assert done.stderr == (
        "agent-memory: 'asyncpg' is not installed; "
        "install it with: pip install 'agent-memory-storage[postgres]' "
        "(in a checkout: pip install '.[postgres]')\n"
    )


@pytest.mark.parametrize(
    ("package", "url", "extra"),
    [("sqlalchemy", "sqlite://", "sql"), ("aioboto3", "dynamodb://table?region=x", "dynamodb")],
)  # fmt: skip
def test_without_a_store_s_packages(package, url, extra):
    """Where what a store is made of is missing, one line names the extra."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from agent_memory.cli import main; main()"
    )
    done = run("demo", "--store", url, code=code)
    assert done.returncode == 1
    assert f"pip install 'agent-memory-storage[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_has_had_enough():
    """Output into a closed pipe ends the command without a word."""
    code = (
        "import os, sys; read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
        "from agent_memory.cli import main; main()"
    )
    done = run("demo", "--json", code=code)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["demo", "--help"], ["--version"]])
def test_help(arguments, capsys):
    """Help and version are written to standard output, with exit code 0."""
    assert run_here(arguments) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "agent-memory" in output.out


def test_a_bug_is_told_in_one_line_too(shown, monkeypatch):
    """An error nobody expected names itself in one line; a variable brings the traceback."""

    def fail(*_arguments, **_options):
        raise KeyError("x")

    monkeypatch.setattr("agent_memory.cli.demo.demo_conversation", fail)
    quiet = shown()
    monkeypatch.setenv("AGENT_MEMORY_DEBUG", "1")
    loud = shown()
    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert quiet.stderr.startswith("agent-memory: unexpected KeyError")
    assert len(quiet.stderr.splitlines()) == 1
    assert "Traceback" in loud.stderr


def test_a_broken_promise_ends_with_exit_code_1(shown, monkeypatch):
    """Were a view to split an exchange, the demo would say so and fail."""
    answers = iter([set(), {"torn"}])
    monkeypatch.setattr("agent_memory.cli.demo.unpaired", lambda *_: next(answers, set()))
    done = shown()
    assert done.returncode == 1
    assert "BROKEN  demo-skerrow-census, after message 1: torn" in done.stdout
    assert "OK " not in done.stdout
