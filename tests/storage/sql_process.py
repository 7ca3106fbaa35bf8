"""Another process that uses a SqlChatStorage.

``python sql_process.py URL NAME COUNT BATCH CHATS`` imports all it needs, prints ``ready``, waits
for a line on standard input, and then saves COUNT batches of BATCH messages, in turn to CHATS
chats. After each save it prints the chat's number, the batch's number and the positions.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from agent_memory import ConversationMessage, SqlChatStorage


async def save(url, name, count, batch, chats):
    async with SqlChatStorage(url) as storage:
        for number in range(count):
            chat = number % chats
            messages = [
                ConversationMessage(
                    "user", f"{name} {number} {part}", id=f"{name}-{number}-{part}"
                )
                for part in range(batch)
            ]
            stored = await storage.save_chat_messages("user", f"session {chat}", "agent", messages)
            print(chat, number, *(m.position for m in stored), flush=True)  # noqa: T201


def start(url, name, count, batch=1, chats=1):
    """Start such a process; it waits at the barrier of its standard input."""
    arguments = [str(part) for part in (url, name, count, batch, chats)]
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def go(process):
    """Let it begin."""
    process.stdin.write("go\n")
    process.stdin.flush()


def end(process):
    """Wait for its end and return what it printed, as tuples of numbers, and how it ended."""
    output, _ = process.communicate(timeout=240)
    lines = [line.split() for line in output.split("\n")[:-1]]  # the last one may be torn
    return [tuple(map(int, line)) for line in lines], process.returncode


def main():
    url, name, *numbers = sys.argv[1:]
    count, batch, chats = map(int, numbers)
    print("ready", flush=True)  # noqa: T201  (what the parent waits for)
    sys.stdin.readline()
    asyncio.run(save(url, name, count, batch, chats))


if __name__ == "__main__":
    main()
