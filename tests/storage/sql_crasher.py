"""Kills a process at each of its dealings with the database in turn, and looks at what it leaves.

``python sql_crasher.py URL`` prints, as JSON, a line for every one of these crashes: what the
process was about to do, whether it was killed, and the chat as the next process found it: floor,
positions and ids, and the same after that one has saved the batch once more.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from sql_tools import watched

from agent_memory import ChatKey, ConversationMessage, SqlChatStorage

IDS = "user", "session", "agent"
OLD = ["a1", "a2", "a3"]
NEW = ["b1", "b2", "b3"]


def messages(ids):
    return [ConversationMessage("user", f"content of {one}", id=one) for one in ids]


async def prepare(url):
    async with SqlChatStorage(url) as storage:
        await storage.delete_chat(*IDS)
        stored = await storage.save_chat_messages(*IDS, messages(OLD))
        return stored[0].position - 1  # the floor


async def save(storage):
    await storage.save_chat_messages(*IDS, messages(NEW))


async def trim(storage):
    await storage.trim_chat(*IDS, 1)


STEPS = {"save": save, "trim": trim}


class Killer:
    """Ends the process at the moment `number` of its dealings with the engine."""

    def __init__(self, number):
        self._left = number

    def __call__(self, _moment, _text):
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


async def crash(url, step, number):
    async with SqlChatStorage(url) as storage:
        with watched(storage, Killer(number)):
            await STEPS[step](storage)


def killed(url, step, number):
    """Do a step in a process that is killed at a moment; return whether it was."""
    child = os.fork()
    if child == 0:
        asyncio.run(crash(url, step, number))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


async def look(url):
    async with SqlChatStorage(url) as storage:
        found = [await chat(storage)]
        await storage.save_chat_messages(*IDS, messages(NEW))
        return [*found, await chat(storage)]


async def chat(storage):
    log = await storage._read(ChatKey(*IDS))
    return {
        "floor": log.floor,
        "positions": [entry.position for entry in log.entries],
        "ids": [entry.id for entry in log.entries],
    }


def main(url):
    for step in STEPS:
        for number in range(100):
            start = asyncio.run(prepare(url))
            was_killed = killed(url, step, number)
            found = asyncio.run(look(url))
            told = {"step": step, "killed": was_killed, "start": start, "found": found}
            print(json.dumps(told))  # noqa: T201
            if not was_killed:
                break


if __name__ == "__main__":
    main(sys.argv[1])
