"""A process that dies at any moment leaves a batch whole or not at all, and so a trim."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import matrix

CRASHER = Path(__file__).with_name("sql_crasher.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize(
    "sql_url",
    matrix.params(["sqlite", "postgres", "mariadb"], always=["sqlite"]),
    indirect=True,
)
async def test_c17_what_a_killed_process_leaves_is_whole(sql_url):
    """Killed at each statement and commit in turn; what is left can be gone on with."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(CRASHER), sql_url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(crashes) >= 6
    assert [crash["killed"] for crash in crashes if crash["step"] == "save"][-1] is False
    for crash in crashes:
        before, after = crash["found"]
        for chat in (before, after):
            count = len(chat["ids"])
            assert chat["positions"] == list(range(chat["floor"] + 1, chat["floor"] + 1 + count))
        old, new = ["a1", "a2", "a3"], ["b1", "b2", "b3"]
        if crash["step"] == "save":
            assert before["ids"] in (old, old + new)
            assert before["floor"] == crash["start"]
        else:
            assert before["ids"] in (old, old[2:])
            assert before["floor"] == crash["start"] + 3 - len(before["ids"])
        assert after["ids"] == [*before["ids"], *(one for one in new if one not in before["ids"])]
        if not crash["killed"]:
            assert before["ids"] == (old + new if crash["step"] == "save" else old[2:])
