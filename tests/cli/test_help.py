"""What people type first: help, completion, and a look at what a deletion would take."""

from __future__ import annotations

import json

import pytest
from executable import done, run

from agent_memory.cli.app import COMMANDS
from agent_memory.cli.app import run as run_here


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_h_is_help(name, capsys):
    """Of every command; no flag is shown as if it took a value, and no argument in braces."""
    command = [name] if name else []
    assert run_here([*command, "-h"]) == 0
    short = capsys.readouterr().out
    assert run_here([*command, "--help"]) == 0
    assert capsys.readouterr().out == short
    assert "Usage: agent-memory" in short
    assert "<bool>" not in short
    (usage,) = [line for line in short.splitlines() if "Usage: " in line]
    assert "{" not in usage


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("copy", "copy [OPTIONS] SOURCE TARGET"),
        ("import", "import [OPTIONS] SOURCE"),
        ("show", "show [OPTIONS] USER SESSION [AGENT]"),
        ("export", "export [OPTIONS] [USER] [SESSION] [AGENT]"),
    ],
)
def test_arguments_have_the_names_people_expect(name, usage, capsys):
    assert run_here([name, "-h"]) == 0
    assert f"Usage: agent-memory {usage} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [
        ("agent-memory pr", 1, ["prune"]),
        ("agent-memory export --re", 2, ["--resume"]),
        ("agent-memory show --f", 2, ["--follow"]),
    ],
)
def test_a_shell_completes_commands_and_options(words, place, expected):
    """As bash asks when the script of --install-completion is in use."""
    ended = run(_AGENT_MEMORY_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(place))
    assert (ended.returncode, ended.stdout.split()) == (0, expected), ended.stderr


def test_completion_can_be_installed(tmp_path):
    """Into the home of whoever asks."""
    ended = run("--help")
    assert "--install-completion" in ended.stdout
    (tmp_path / ".bashrc").touch()
    ended = run(
        "--install-completion",
        "bash",
        HOME=str(tmp_path),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert ended.returncode == 0, ended.stderr
    (script,) = (tmp_path / ".bash_completions").iterdir()
    assert "_AGENT_MEMORY_COMPLETE=complete_bash" in script.read_text()


@pytest.mark.parametrize(
    "arguments",
    [["delete", "ada", "hike"], ["prune", "--older-than", "0m"]],
)
def test_a_dry_run_says_what_would_go_and_removes_nothing(arguments, small):
    """It asks nothing, and a run in earnest takes the same afterwards."""
    command = [*arguments, "--store", small]
    before = done("export", "--store", small)
    told = done(*command, "--dry-run")
    assert told.startswith("would delete ")
    plain = json.loads(done(*command, "--dry-run", "--json"))
    assert plain.pop("dry_run") is True
    assert done("export", "--store", small) == before
    assert json.loads(done(*command, "--yes", "--json"))["chats"] == plain["chats"] > 1
    with pytest.raises(AssertionError, match="holds no chat"):
        done("show", "ada", "hike", "--store", small)
