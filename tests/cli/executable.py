"""Running the command line as people do; in a process of its own where that makes a difference."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import agent_memory
from agent_memory import open_storage
from agent_memory.cli.app import run as run_here

ROOT = Path(agent_memory.__file__).parents[1]
AIRLINE = Path(__file__).parents[2].parent / "shared" / "data" / "airline.jsonl"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "NO_COLOR": "1", **more}


def run(*arguments, **more):
    """Run the real command in a process of its own, with nobody at the terminal."""
    return subprocess.run(
        [sys.executable, "-m", "agent_memory", *arguments],
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


def done(*arguments, **more):
    """Run a command here that is to succeed; gives its output, in which nothing is a command."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    with (
        open(os.devnull) as nobody,  # noqa: PTH123  (no path of a test)
        mock.patch.dict(os.environ, {"COLUMNS": "160", "NO_COLOR": "1", **more}),
        mock.patch("sys.stdin", nobody),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        code = run_here(list(arguments))
    output, errors = (_written(stream) for stream in streams)
    assert code == 0, errors
    assert not CONTROL.search(output)
    assert not CONTROL.search(errors)
    return output


def _written(stream):
    stream.flush()
    return stream.buffer.getvalue().decode()


def all_done(*commands, **more):
    """Run commands here; gives their outputs."""
    return [done(*command, **more) for command in commands]


def with_store(url, work):
    """Do something with a store from outside of any event loop."""

    async def main():
        async with open_storage(url) as storage:
            return await work(storage)

    return asyncio.run(main())
