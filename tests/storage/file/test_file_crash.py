"""Processes that die at any moment: what was acknowledged stays, the rest is all or nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from file_support import fetched, problems, run

HERE = Path(__file__).parent

# After each step of the crasher: the living ids, the floor, the newest summary record.
STATES = [
    ([], 0, None),
    (["a1", "a2"], 0, None),
    (["a1", "a2", "b1", "b2", "b3"], 0, None),
    (["a1", "a2", "b1", "b2", "b3"], 0, "record at 3"),
    (["b2", "b3"], 3, None),
    (["b2", "b3", "c1"], 3, None),
    (["b2", "b3", "c1"], 3, "record at 5"),
    ([], 6, None),
    (["d1", "d2"], 6, None),
]


def python(*arguments):
    """Start a Python that finds what this one finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """What each crash left: one at every dealing with the disk."""
    command = [
        sys.executable,
        str(HERE / "file_crasher.py"),
        str(tmp_path_factory.mktemp("crash")),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=240, env=environment
    )
    return json.loads(ended.stdout)


def test_the_crasher_dies_at_every_step(crashes):
    """Else the tests below would show nothing."""
    assert {crash["steps"] for crash in crashes} == set(range(len(STATES)))
    assert [crash["died"] for crash in crashes].count(False) == 1
    assert len(crashes) > 60


def test_a_crash_leaves_the_old_or_the_new_state(crashes):
    """What was acknowledged is there; the step under way is there whole or not at all."""
    for crash in crashes:
        old, new = STATES[crash["steps"]], STATES[min(crash["steps"] + 1, len(STATES) - 1)]
        ids, floor = crash["ids"], crash["floor"]
        assert (ids, floor) in (old[:2], new[:2]), crash
        assert crash["positions"] == [*range(floor + 1, floor + len(ids) + 1)]


def test_a_crash_leaves_no_summary_of_what_is_gone(crashes):
    """Records go before the messages; none is at another floor."""
    for crash in crashes:
        old, new = STATES[crash["steps"]], STATES[min(crash["steps"] + 1, len(STATES) - 1)]
        assert crash["record"] in (old[2], new[2]), crash
        assert crash["record"] is None or crash["floor"] in (0, 3)


def test_after_a_crash_saving_goes_on_at_the_next_position(crashes):
    """On a fresh line; torn ends and leftover files are gone."""
    for crash in crashes:
        assert crash["next"] == crash["floor"] + len(crash["ids"]) + 1
        assert crash["after"] == [*crash["ids"], "next"]
        assert all("never ended" in problem for problem in crash["problems"])
        assert crash["left"] == []
        assert {"agent.jsonl"} <= set(crash["files"]) <= {"agent.jsonl", "agent.summaries"}


WRITER = """
import asyncio, sys
from agent_memory import ConversationMessage, FileChatStorage

async def main(root, name):
    async with FileChatStorage(root) as storage:
        number = 0
        while True:
            batch = [ConversationMessage("user", f"{name} {number} {part}") for part in range(3)]
            await storage.save_chat_messages("user", "session", "agent", batch)
            print(number, flush=True)
            number += 1
            if number % 7 == 0:
                await storage.fetch_chat("user", "session", "agent")

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def start_writer(root, name):
    return python("-c", WRITER, str(root), name)


def kill_after(process, count):
    """Kill a writer once it has acknowledged `count` batches; return how many it did in all."""
    acknowledged = [process.stdout.readline() for _ in range(count)]
    process.send_signal(signal.SIGKILL)
    acknowledged += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    return sum(line.endswith("\n") for line in acknowledged)


def check_rounds(root, rounds):
    """Two writers at a time on one chat, each killed in the midst of its work."""
    rng = random.Random(rounds)
    promised = {}
    for number in range(rounds):
        names = [f"{number}-{side}" for side in "ab"]
        writers = [start_writer(root, name) for name in names]
        for name, writer in zip(names, writers, strict=True):
            promised[name] = kill_after(writer, rng.randrange(1, 40))
    messages = run(fetched(root))
    assert [m.position for m in messages] == [*range(1, len(messages) + 1)]
    batches = [m.content.rsplit(" ", 1)[0] for m in messages]
    assert batches[::3] == batches[1::3] == batches[2::3]
    for name, count in promised.items():
        mine = [batch for batch in batches[::3] if batch.startswith(f"{name} ")]
        # At most one more than was acknowledged, and nothing twice or out of order.
        assert len(mine) in (count, count + 1)
        assert mine == [f"{name} {number}" for number in range(len(mine))]
    assert all("never ended" in problem.reason for problem in run(problems(root)))


def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path):
    """Two real processes on one chat, killed while they write."""
    check_rounds(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_killed_writers_of_files_lose_nothing_that_was_acknowledged(tmp_path):
    """100 rounds of two killed processes."""
    check_rounds(tmp_path, 100)


TRIMMER = """
import asyncio, sys
from agent_memory import FileChatStorage

async def main(root):
    async with FileChatStorage(root) as storage:
        while True:
            print(await storage.trim_chat("user", "session", "agent", 5), flush=True)

asyncio.run(main(sys.argv[1]))
"""


def test_a_writer_beside_a_trimmer_that_is_killed_loses_nothing(tmp_path):
    """The file is replaced under the writer all the time; positions go on without a gap."""
    writer = start_writer(tmp_path, "w")
    writer.stdout.readline()
    trimmer = python("-c", TRIMMER, str(tmp_path))
    kill_after(trimmer, 30)
    count = kill_after(writer, 50) + 1
    messages = run(fetched(tmp_path))
    last = messages[-1].position
    assert last // 3 in (count, count + 1)
    assert [m.position for m in messages] == [*range(messages[0].position, last + 1)]
    assert [m.content for m in messages] == [
        f"w {(position - 1) // 3} {(position - 1) % 3}"
        for position in range(messages[0].position, last + 1)
    ]
    assert all("never ended" in problem.reason for problem in run(problems(tmp_path)))
