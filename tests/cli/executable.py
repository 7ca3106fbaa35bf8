"""Running the command line as people do: the real command, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agent_memory
from agent_memory import open_storage

ROOT = Path(agent_memory.__file__).parents[1]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "NO_COLOR": "1", **more}


def run(*arguments, **more):
    """Run a command with nobody at the terminal."""
    return subprocess.run(
        [sys.executable, "-m", "agent_memory", *arguments],
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


def done(*arguments, **more):
    """Run a command that is to succeed; gives its output, in which nothing is a command."""
    result = run(*arguments, **more)
    assert result.returncode == 0, result.stderr
    assert not CONTROL.search(result.stdout)
    assert not CONTROL.search(result.stderr)
    return result.stdout


def all_done(*commands, **more):
    """Run commands that only look, some at a time; gives their outputs."""
    with ThreadPoolExecutor(2) as executor:
        return list(executor.map(lambda command: done(*command, **more), commands))


def with_store(url, work):
    """Do something with a store from outside of any event loop."""

    async def main():
        async with open_storage(url) as storage:
            return await work(storage)

    return asyncio.run(main())
