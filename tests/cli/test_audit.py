"""The audit commands, on stores with hostile and huge content."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from executable import AIRLINE, CONTROL, all_done, done, environment, run, with_store

import matrix
from agent_memory import ConversationMessage
from agent_memory.audit.selection import Scope
from agent_memory.cli.app import run as run_here
from chats_to_move import HOSTILE, IDS, everything, records

ADA = ("ada", "hike")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("AGENT_MEMORY_STORE", raising=False)


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_looking(store):
    """ls, show, view, history, stats and verify tell what is there; nothing is obeyed."""
    commands = [
        ("ls",), ("show", *ADA), ("view", *IDS), ("history", *IDS), ("stats",), ("verify",),
        ("show", *IDS, "--last", "3", "--raw"), ("history", *IDS, "--json"),
    ]  # fmt: skip
    out = dict(zip(commands, all_done(*commands, AGENT_MEMORY_STORE=store), strict=True))
    assert "ada hike guide  say 1" in out["ls",]
    assert "␛[2J" in out["ls",]
    assert len(out["ls",].splitlines()) == 5
    _check_transcripts(out)
    assert "through summary 1" in out["view", *IDS]
    assert "as it is" in out["view", *IDS]
    last = json.loads(out["history", *IDS, "--json"])[-1]
    assert f"{last['tokens_before']:,} → {last['tokens_after']:,}" in out["history", *IDS]
    assert "bob" in out["stats",]
    assert "all is well: 4 chats" in out["verify",]


def _check_transcripts(out):
    text = out["show", *ADA]
    assert "<script>alert(1)</script>" in text
    assert "␛[2J" in text
    assert '→ calls find_hut {"km": 12}' in text
    assert "← (9 characters) four beds" in text
    assert "[image]" in text
    last = out["show", *IDS, "--last", "3", "--raw"]
    assert [line for line in last.splitlines() if "say" in line] == [
        "  content: say 28", "  content: say 29", "  content: say 30",
    ]  # fmt: skip


def test_c75_an_unknown_cost_is_not_reported(small, capsys, monkeypatch):
    """history, stats and report say "not reported" where a summary's cost is unknown."""
    monkeypatch.setenv("COLUMNS", "200")
    assert run_here(["history", *IDS, "--store", small]) == 0
    assert capsys.readouterr().out.count("not reported") > 2
    assert run_here(["stats", "--store", small]) == 0
    assert re.search(r"all .* not reported", capsys.readouterr().out)
    assert run_here(["report", *IDS[:2], "--store", small, "-o", "report.html"]) == 0
    assert "its cost was not reported" in Path("report.html").read_text()


def test_json(small, capsys):
    """What is written for programs holds the same, in ASCII or escaped, an object a line."""

    def lines(*arguments):
        assert run_here([*arguments, "--json", "--store", small]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        assert not CONTROL.search(output.out)
        return json_lines(output.out)

    chats = {chat["agent_id"]: chat for chat in lines("ls", "ada")}
    assert (chats["guide"]["messages"], chats["guide"]["title"]) == (30, "say 1")
    assert chats["guide"]["summaries"] > 1
    assert chats["guide"]["updated_at"]
    assert [chat["tokens"] for chat in lines("ls", "--all", "--brief")] == [None] * 3
    shown = lines("show", *ADA)
    assert len(shown) == 38
    assert [line["entry"]["note"] for line in shown if "note" in line["entry"]] == ["run"]
    assert any(line["entry"].get("content") == HOSTILE for line in shown)
    (view,) = lines("view", *IDS)
    assert view["stored_messages"] == 30 > len(view["view"])
    assert view["stored_tokens"] > view["view_tokens"]
    covered = [stretch for stretch in view["stretches"] if stretch["standing"] == "covered"]
    (history,) = lines("history", *IDS)
    assert [stretch["summary_id"] for stretch in covered] == [record["id"] for record in history]
    (stats,) = lines("stats", "ada")
    assert stats["total"]["messages"] == 37
    assert [agent["agent_id"] for agent in stats["agents"]] == ["guide", "weather"]
    (verified,) = lines("verify", "ada")
    assert (verified["chats"], verified["wrong"]) == (2, 0)


def test_moving(store, tmp_path):
    """What is exported and imported, or copied, is the same; doing it again adds nothing."""
    file, other = f"{tmp_path}/chats.jsonl", f"sqlite:///{tmp_path}/other.db"
    done("export", "--store", store, "-o", file)
    assert not CONTROL.search(Path(file).read_text(encoding="utf-8"))
    told = done("import", file, "--store", other)
    assert "41 messages of 4 chats stored" in told
    assert "summaries carried" in told
    copied = f"file:{tmp_path}/copied"
    told = done("copy", store, copied)
    assert told.endswith("the target holds everything, compared entry by entry\n")
    again = json.loads(done("copy", store, copied, "--json"))
    assert (again["messages"], again["present"], again["different"]) == (0, 42, [])
    original = with_store(store, everything)
    assert with_store(other, everything) == with_store(copied, everything) == original
    assert with_store(other, records) == with_store(store, records)


def test_moving_back(small, empty_store, tmp_path):
    """Every store takes in what was exported from another."""
    assert run_here(["export", "--store", small, "-o", "chats.jsonl"]) == 0
    assert run_here(["import", "chats.jsonl", "--store", empty_store]) == 0
    assert with_store(empty_store, everything) == with_store(small, everything)
    assert with_store(empty_store, records) == with_store(small, records)


@pytest.mark.parametrize("kind", matrix.params(["mariadb", "dynamodb"], always=["dynamodb"]))
def test_other_stores(small, kind, request, capsys):
    """The commands are made of the contract alone: they work on every store."""
    if kind == "mariadb":
        url = request.getfixturevalue("mariadb_url")
    else:
        endpoint, table = map(
            request.getfixturevalue, ("quick_dynamodb_endpoint", "dynamodb_table")
        )
        url = f"dynamodb://{table}?region=eu-central-1&create_table=true&endpoint={endpoint}"
    for command in (
        ["copy", small, url],
        ["ls", "--store", url],
        ["show", *ADA, "--store", url],
        ["view", *IDS, "--store", url],
        ["history", *IDS, "--store", url],
        ["stats", "--store", url],
        ["verify", "--store", url],
        ["export", "-o", "x.jsonl", "--store", url],
        ["report", *ADA, "-o", "x.html", "--store", url],
        ["prune", "--older-than", "1d", "--yes", "--store", url],
    ):
        assert run_here(command) == 0, capsys.readouterr().err
    assert with_store(url, everything) == with_store(small, everything)
    assert with_store(url, records) == with_store(small, records)
    assert "all is well: 3 chats" in capsys.readouterr().out
    assert run_here(["delete", "ada", "--yes", "--store", url]) == 0
    assert "deleted 2 chats with 37 messages" in capsys.readouterr().out


def test_killed_and_done_again(empty_store):
    """An import that is killed at any moment is completed by doing it again."""
    file, count = Path("big.jsonl"), 10_000
    with file.open("w", encoding="utf-8") as out:
        for number in range(count):
            out.write(json.dumps({"role": "user", "content": f"say {number}"}) + "\n")
    command = ["import", str(file), "--store", empty_store]
    with subprocess.Popen(
        [sys.executable, "-m", "agent_memory", *command],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        while process.poll() is None and not with_store(empty_store, Scope().entries):
            pass  # until something of it is there, or all
        process.kill()
        assert process.stderr.read() == b""
    held = with_store(empty_store, Scope().entries)
    assert held > 0
    assert f"{held:,} were there already" in done(*command)
    (log,) = with_store(empty_store, everything).values()
    assert [message.content for message in log] == [f"say {n}" for n in range(count)]


def test_forgetting(store):
    """Prune and delete ask first, say what went, and remove it for good."""
    refused = run("delete", "ada", "--store", store)
    assert refused.returncode == 2
    assert "Delete 2 chats with 38 messages and" in refused.stderr
    assert "--yes" in refused.stderr
    assert "deleted 0 chats" in done("prune", "--older-than", "1d", "--store", store, "--yes")
    assert "deleted 1 chat with 30 messages" in done("delete", *IDS, "--store", store, "--yes")
    gone = json.loads(done("delete", "ada", "--store", store, "--yes", "--json"))
    assert gone == {"chats": 1, "messages": 7, "summaries": 0, "unknown": 0}
    assert len(with_store(store, everything)) == 2


def test_reporting(store):
    """A report of each session is one file; an existing one is kept."""
    told = done("report", *ADA, "-o", "report.html", "--store", store)
    assert "report.html: 37 messages" in told
    html = Path("report.html").read_text(encoding="utf-8")
    assert "<script" not in html.replace("&lt;script", "")
    assert "&lt;script&gt;alert(1)" in html
    assert run_here(["report", *ADA, "-o", "report.html", "--store", store]) == 2
    name = f"eve {HOSTILE}"
    told = done("report", name, name, "-o", "report.html", "--force", "--store", store)
    assert len(Path("report.html").read_text(encoding="utf-8")) < 200_000


def test_statistics_of_files_for_programs(small):
    """What a report shows, and how much an export wrote, as JSON on standard output."""
    told = json.loads(done("report", *ADA, "-o", "r.html", "--store", small, "--json"))
    assert (told["output"], told["bytes"]) == ("r.html", Path("r.html").stat().st_size)
    assert told["messages"] == 37
    guide, weather = told["agents"]
    assert (guide["agent_id"], guide["messages"], guide["turns"]) == ("guide", 30, 15)
    assert guide["view_messages"] < guide["messages"]
    assert (weather["summaries"], weather["holes"]) == (0, [])
    told = json.loads(done("export", "-o", "x.jsonl", "--store", small, "--json"))
    size = Path("x.jsonl").stat().st_size
    assert told == {"output": "x.jsonl", "bytes": size, "entries": 41, "bad": 0, "left_out": 0}


def test_following(store):
    """Show --follow writes what is there, then what comes, and ends when interrupted."""
    command = ["show", *IDS, "--last", "1", "--follow", "--store", store]
    with subprocess.Popen(
        [sys.executable, "-m", "agent_memory", *command],
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        # A shell's background jobs ignore interrupts, and so would what is started from one.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        seen = []
        for line in process.stdout:
            seen.append(line.strip())
            if seen[-1] == "say 30":
                with_store(
                    store, lambda s: s.save_chat_message(*IDS, ConversationMessage("user", "news"))
                )
            if seen[-1] == "news":
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""
    assert "say 29" not in seen


@pytest.mark.skipif(not AIRLINE.exists(), reason=f"the real conversations are not at {AIRLINE}")
def test_real_conversations():
    """The 42 conversations of a real agent go through every command."""
    env = {"AGENT_MEMORY_STORE": "sqlite:///chats.db"}
    assert "1,064 messages of 42 chats stored" in done("import", str(AIRLINE), **env)
    assert "1,064 were there already" in done("import", str(AIRLINE), **env)
    ids = ("imported", "airline-2-0")
    done("export", "-o", "openai.jsonl", "--format", "openai", **env)
    outputs = all_done(
        ("ls", "--limit", "100"), ("show", *ids), ("view", *ids, "agent"),
        ("history", *ids, "agent"), ("stats",), ("verify",), ("export", "--format", "markdown"),
        ("export", "--format", "openai-json"), ("report", *ids, "-o", "report.html"),
        ("copy", env["AGENT_MEMORY_STORE"], "file:copied"), **env,
    )  # fmt: skip
    assert len(outputs[0].splitlines()) == 43
    assert "all is well: 42 chats, 1,064 entries" in outputs[5]
    source, written = (
        {chat["id"]: chat["messages"] for chat in json_lines(path.read_text(encoding="utf-8"))}
        for path in (AIRLINE, Path("openai.jsonl"))
    )
    assert written == source
    assert {c["id"]: c["messages"] for c in json.loads(outputs[7])} == source
    assert "deleted 42 chats with 1,064 messages" in done("delete", "imported", "--yes", **env)


# -------------------------------------------------------- what goes wrong, in this process


def failed(capsys, *arguments):
    """Run a command that is to fail in one line; gives exit code and line."""
    code = run_here(list(arguments))
    output = capsys.readouterr()
    assert output.err.startswith("agent-memory: ")
    assert len(output.err.splitlines()) == 1
    assert "Traceback" not in output.err
    assert "unexpected" not in output.err
    return code, output.err


COMMANDS = {
    "ls": ["ls"],
    "show": ["show", "u", "s"],
    "view": ["view", "u", "s", "a"],
    "history": ["history", "u", "s", "a"],
    "export": ["export"],
    "import": ["import", "chats.jsonl"],
    "copy": ["copy", "URL", "memory:"],
    "verify": ["verify"],
    "delete": ["delete", "u", "--yes"],
    "prune": ["prune", "--older-than", "1d", "--yes"],
    "stats": ["stats"],
    "report": ["report", "u", "s", "-o", "r.html"],
}


@pytest.mark.parametrize("name", ["ls", "import", "copy", "report"])
def test_a_store_that_does_not_answer(name, capsys):
    """One line, exit code 1, and no password, whatever the command."""
    url = "postgresql://me:hunter2@127.0.0.1:1/db"
    Path("chats.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}')
    arguments = [url if word == "URL" else word for word in COMMANDS[name]]
    store = [] if name == "copy" else ["--store", url]
    code, told = failed(capsys, *arguments, *store)
    assert code == 1
    assert "not available" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"import", "copy"}))
def test_a_store_that_is_not_there(name, capsys):
    """A mistyped path is told, and nothing is made of it."""
    code, told = failed(capsys, *COMMANDS[name], "--store", "sqlite:///mistyped.db")
    assert (code, told) == (1, "agent-memory: there is no mistyped.db\n")
    assert failed(capsys, *COMMANDS[name], "--store", "file:mistyped")[0] == 1
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"copy"}))
def test_no_store_given(name, capsys):
    """Without --store and its variable, the line says both."""
    code, told = failed(capsys, *COMMANDS[name])
    assert code == 2
    assert "--store URL or set AGENT_MEMORY_STORE" in told


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"import", "copy", "prune"}))
def test_an_unknown_chat(small, name, capsys):
    """Exit code 1, and the line says which store and which ids."""
    ids = [["nobody"], ["nobody", "s"], ["nobody", "s", "a"]]
    words = {"show": 1, "report": 1, "view": 2, "history": 2}
    rest = {"delete": ["--yes"], "report": ["-o", "r.html"]}.get(name, [])
    code, told = failed(capsys, name, *ids[words.get(name, 0)], *rest, "--store", small)
    assert code == 1
    assert "holds no chat of user 'nobody'" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["export", "--format", "xml"], "--format is one of"),
        (["export", "--resume"], "--resume needs --output"),
        (["export", "-o", "there.jsonl"], "there.jsonl exists"),
        (["export", "-o", "there.jsonl", "--resume"], "there.jsonl cannot be resumed"),
        (["view", "ada", "hike", "guide", "--provider", "x"], "--provider is one of"),
        (["prune", "--older-than", "soon"], "an age is written 90d"),
        (["import", "there.jsonl", "--from", "xml"], "the format must be one of"),
        (["import", "."], "is a directory"),
        (["import", "there.jsonl", "--user", ""], "user_id must not be empty"),
        (["ls", "--limit", "0"], "--limit"),
        (["ls", ""], "must not be empty"),
        (["show", "ada"], "SESSION"),
        (["delete"], "USER"),
        (["export", "--json"], "--output"),
    ],
)
def test_what_is_asked_wrongly(small, arguments, told, capsys):
    """Exit code 2 and a line that says what to do."""
    Path("there.jsonl").write_text("hello\n")
    code, line = failed(capsys, *arguments, "--store", small)
    assert code == 2
    assert told in line


def test_the_same_store_twice(capsys):
    """A store is not copied onto itself."""
    assert failed(capsys, "copy", "file:x", "file:x")[0] == 2


def test_bad_records(small, capsys):
    """They end the import with file and line, or are passed over, told and counted."""
    good = '{"id": "%s", "messages": [{"role": "user", "content": "hi"}]}'
    Path("c.jsonl").write_text(f"{good % 'one'}\n{{\x1b[2J\n{good % 'two'}\n")
    code, told = failed(capsys, "import", "c.jsonl", "--store", small)
    assert code == 1
    assert "c.jsonl, line 2: it is not JSON" in told
    assert "stored before it: 1 entry" in told
    assert "--keep-going" in told
    assert run_here(["import", "c.jsonl", "--keep-going", "--store", small, "--json"]) == 1
    output = capsys.readouterr()
    assert "c.jsonl, line 2: " in output.err
    assert not CONTROL.search(output.err)
    done = json.loads(output.out)
    assert (done["messages"], done["present"], done["bad"]) == (1, 1, 1)


@pytest.mark.parametrize("name", ["view", "history"])
def test_the_agent_may_be_left_out_where_there_is_one(small, name, capsys):
    """The session's only one is taken; of several, the line names them."""
    only = ("bob", "a/b #%")
    for more in ([], ["--json"]):
        given = done(name, *only, "guide", "--store", small, *more)
        assert done(name, *only, "--store", small, *more) == given
    code, told = failed(capsys, name, *ADA, "--store", small)
    assert code == 2
    assert "session 'hike' has 2 agents; say which: 'guide', 'weather'" in told


@pytest.mark.parametrize("text", ["", "\n \n", "[]", '{"v":1,"export":"agent-memory"}\n'])
def test_a_file_without_messages_is_told_of(small, text, capsys):
    """Nothing that was imported is said to be nothing."""
    Path("c.jsonl").write_text(text)
    assert run_here(["import", "c.jsonl", "--store", small]) == 0
    assert "there was nothing to import in c.jsonl" in capsys.readouterr().err


def test_bad_lines_of_an_export_are_told(small, capsys):
    """What is wrong, and no empty place; and what a changed message comes to."""
    done("export", "--store", small, "-o", "c.jsonl")
    whole = Path("c.jsonl").read_bytes()
    Path("c.jsonl").write_bytes(whole + b"oops\n")
    _, told = failed(capsys, "import", "c.jsonl", "--store", small)
    assert f"line {whole.count(10) + 1}: unreadable record at this line: Expecting" in told
    Path("c.jsonl").write_bytes(whole.replace(b'say 3"', b'said 3"'))
    _, told = failed(capsys, "import", "c.jsonl", "--store", small)
    assert "message id 'm3' is already in the chat" in told
    assert "this one is not stored" in told
    assert "; stored before it: " in told
    assert "nothing was stored" not in told


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_copy_that_differs_is_told(small, more, monkeypatch, capsys):
    """The comparison afterwards names each chat that is not as in the source; exit code 1."""
    done("copy", small, "file:copied")
    with_store("file:copied", lambda s: s.delete_chat("bob", "a/b #%", "guide"))
    other = ConversationMessage("user", "say 1", id="m1")
    with_store("file:copied", lambda s: s.save_chat_message("bob", "a/b #%", "guide", other))
    capsys.readouterr()
    assert run_here(["copy", small, "file:copied", *more]) == 1
    output = capsys.readouterr()
    assert "'m1' is another one in the target" in output.err + output.out
    assert "1 chat differ; copy again" in output.err or json.loads(output.out)["different"]


def test_verify_names_what_is_wrong(small, tmp_path, capsys):
    """Each problem is a line, the exit code is 1; export and copy tell of it too."""
    import sqlite3  # noqa: PLC0415

    with sqlite3.connect(tmp_path / "chats.db") as connection:
        connection.execute(
            "UPDATE agent_memory_entries SET body = '{' WHERE chat = 2 AND position = 2"
        )
    connection.close()
    assert run_here(["verify", "--store", small]) == 1
    output = capsys.readouterr()
    assert "chat 2, position 2: unreadable record" in output.out
    assert "1 problem: 3 chats" in output.out
    assert run_here(["export", "-o", "x.jsonl", "--store", small]) == 1
    told = capsys.readouterr().err
    assert "chat 2, position 2" in told
    assert "1 position cannot be read; each is marked" in told
    assert run_here(["copy", small, "file:copied", "--keep-going"]) == 1
    assert "1 record left out" in capsys.readouterr().out


def test_the_progress(small):
    """At a terminal a bar tells messages, their rate and the time left, beside the output."""
    result = run("copy", small, "file:copied", FORCE_COLOR="1", NO_COLOR="")
    assert re.search(r"copying.* 41 messages, .*\d/s", result.stderr)
    assert "comparing" in result.stderr
    assert "━" not in result.stdout


def test_an_export_is_resumed(small):
    """A file that was cut anywhere becomes the whole export."""
    done("export", "-o", "x.jsonl", "--store", small)
    whole = Path("x.jsonl").read_bytes()
    Path("x.jsonl").write_bytes(whole[: len(whole) // 2])
    done("export", "-o", "x.jsonl", "--resume", "--store", small)
    assert Path("x.jsonl").read_bytes() == whole
    assert done("export", "--store", small).encode() == whole


def test_deleting_asks(small, monkeypatch, capsys):
    """At a terminal the question is put; no keeps everything, yes deletes."""
    import io  # noqa: PLC0415

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for answer, code in (("n\n", 130), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        assert run_here(["delete", "bob", "--store", small]) == code
        assert "Delete 1 chat with 3 messages" in capsys.readouterr().err
        left = len(with_store(small, everything))
        assert left == (3 if code else 2)
