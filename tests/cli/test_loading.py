"""Commands are loaded when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_memory.cli.app import COMMANDS, load, run


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_each_command_says_of_itself(name):
    """The first paragraph of its own help, which the list shows without loading it."""
    command = load(name)
    assert command.name == name
    assert command.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name][1]


def test_the_help_of_all_loads_none():
    """Nor a store, nor rich's progress bars."""
    code = (
        "import sys; sys.argv = ['agent-memory', '--help']\n"
        "import agent_memory.cli\n"
        "try:\n    agent_memory.cli.main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(ended.stderr.split())
    assert all(name in ended.stdout for name in COMMANDS)
    assert "agent_memory.cli.app" in loaded
    unwanted = {"agent_memory.cli.demo", "agent_memory.storage", "rich.progress", "sqlalchemy"}
    assert loaded & unwanted == set()


def test_the_help_of_one_tells_its_options(capsys):
    """It is loaded then."""
    assert run(["copy", "--help"]) == 0
    assert "--keep-going" in capsys.readouterr().out
