"""A process that saves batches and prints what it was told: ``python writer.py``.

It reads a pickled :class:`Order` from standard input and prints ``batch first-position`` for each
batch as soon as it is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from agent_memory import ChatStorage, ConversationMessage


@attrs.frozen(kw_only=True)
class Order:
    """What a writer does: `batches` batches of `size` messages, to each of `chats` in turn.

    With `fetching` it fetches the chat after each, as an orchestrator does.
    """

    make_storage: Callable[[], ChatStorage]
    name: str
    batches: int
    size: int = 3
    chats: tuple[tuple[str, str, str], ...]
    fetching: bool = False

    def batch(self, number: int) -> list[ConversationMessage]:
        """The same messages, ids included, whoever asks."""
        return [
            ConversationMessage(
                "user", [self.name, number, place], id=f"{self.name}-{number}-{place}"
            )
            for place in range(self.size)
        ]


async def write(order: Order) -> None:
    async with order.make_storage() as storage:
        for number in range(order.batches):
            chat = order.chats[number % len(order.chats)]
            stored = await storage.save_chat_messages(*chat, order.batch(number))
            sys.stdout.write(f"{number} {stored[0].position}\n")
            sys.stdout.flush()
            if order.fetching:
                await storage.fetch_chat(*chat)


def start(order: Order) -> subprocess.Popen[bytes]:
    """Start a writer that does what is ordered."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    process.stdin.write(pickle.dumps(order))
    process.stdin.close()
    return process


def answers(process: subprocess.Popen[bytes]) -> list[tuple[int, int]]:
    """Everything a writer was still told, until its end."""
    lines = [line.split() for line in process.stdout if line.endswith(b"\n")]
    process.stdout.close()
    process.wait()
    return [(int(number), int(position)) for number, position in lines]


if __name__ == "__main__":
    asyncio.run(write(pickle.loads(sys.stdin.buffer.read())))
