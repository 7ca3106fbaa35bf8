"""A process that saves messages one by one: a second writer for tests.

``python -m agent_memory.testing.saver`` reads a pickled ``(make_storage, ids, name, count)``
from standard input, saves `count` messages and prints the returned positions as JSON.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
from collections.abc import Callable

from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage


async def save_messages(
    make_storage: Callable[[], ChatStorage], ids: tuple[str, str, str], name: str, count: int
) -> list[int | None]:
    """Save messages with the contents 0, 1, 2, … and return their positions.

    Args:
        make_storage: gives the storage to save with.
        ids: user, session and agent.
        name: what ``metadata["process"]`` says in each message.
        count: how many.
    """
    positions: list[int | None] = []
    async with make_storage() as storage:
        for number in range(count):
            message = ConversationMessage("user", number, metadata={"process": name})
            (stored,) = await storage.save_chat_message(*ids, message)
            positions.append(stored.position)
    return positions


def main() -> None:
    """Do what the parent process asks for on standard input."""
    asked = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  (our own parent wrote it)
    json.dump(asyncio.run(save_messages(*asked)), sys.stdout)


if __name__ == "__main__":
    main()
