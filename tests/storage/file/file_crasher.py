"""Kills a process at each of its dealings with the disk in turn, and looks at what it leaves.

``python file_crasher.py DIRECTORY`` prints, as JSON, what every one of these crashes left.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from agent_memory import (
    ChatKey,
    ConversationMessage,
    FileChatStorage,
    SummaryRecord,
)
from agent_memory.records import Covered
from agent_memory.storage.file import disk as file_disk
from agent_memory.storage.file import trimming as file_trimming

KEY = ChatKey("user", "session", "agent")
IDS = (KEY.user_id, KEY.session_id, KEY.agent_id)


def messages(*ids):
    return [ConversationMessage("user", f"content of {one}" * 5, id=one) for one in ids]


def record(floor, position, message_id):
    covered = Covered(floor + 1, position, position - floor)
    return SummaryRecord(
        summary=tuple(messages("summary")),
        head=(),
        position=position,
        message_id=message_id,
        floor=floor,
        covered=covered,
        id=f"record at {position}",
    )


def save(*ids):
    return lambda storage: storage.save_chat_messages(*IDS, messages(*ids))


def summarize(floor, position, message_id):
    return lambda storage: storage.summaries().save_summary(
        KEY, record(floor, position, message_id), replaces=None
    )


STEPS = [
    save("a1", "a2"),
    save("b1", "b2", "b3"),
    summarize(0, 3, "b1"),
    lambda storage: storage.trim_chat(*IDS, 2),
    save("c1"),
    summarize(3, 5, "b3"),
    lambda storage: storage.delete_chat(*IDS),
    save("d1", "d2"),
]


async def work(root, acknowledge):
    async with FileChatStorage(root) as storage:
        for step in STEPS:
            await step(storage)
            acknowledge()


def die_at(count):
    """Let this process be killed before its `count`-th dealing with the disk, or amid it."""
    left = count

    def tick():
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(real):
        def call(*args, **options):
            tick()
            return real(*args, **options)

        return call

    for name in ("open", "mkdir", "replace", "unlink", "fsync", "fdatasync"):
        setattr(os, name, watched(getattr(os, name)))

    def write_in_parts(file, data):
        tick()
        for start in range(0, len(data), 250):
            file.write(data[start : start + 250])
            tick()

    file_disk.write_all = file_trimming.write_all = write_in_parts


def crash(root, count):
    """Work in a child that dies; return the steps it acknowledged, and whether it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        die_at(count)
        asyncio.run(work(root, lambda: os.write(writer, b".")))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        steps = len(pipe.read())
    return steps, os.waitpid(child, 0)[1] != 0


async def left_behind(root):
    """What a new store finds, and what a retry and a further save make of it."""
    async with FileChatStorage(root) as storage:
        before = await storage._read(KEY)
        newest = await storage.summaries().load_summary(KEY)
        problems = [problem.reason async for problem in storage.verify()]
        (stored,) = await storage.save_chat_messages(*IDS, messages("next"))
        after = [message.id for message in await storage.fetch_chat(*IDS)]
        return {
            "ids": [entry.id for entry in before.entries],
            "positions": [entry.position for entry in before.entries],
            "floor": before.floor,
            "record": None if newest is None else newest.id,
            "problems": problems,
            "next": stored.position,
            "after": after,
            "left": [problem.reason async for problem in storage.verify()],
            "files": sorted(path.name for path in root.rglob("*.*")),
        }


def main():
    root, found, died = Path(sys.argv[1]), [], True
    while died:
        place = root / str(len(found))
        steps, died = crash(place, len(found) + 1)
        found.append({"steps": steps, "died": died, **asyncio.run(left_behind(place))})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
