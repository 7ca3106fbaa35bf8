"""What the tests of the file store share."""

from __future__ import annotations

import asyncio
import json

from agent_memory import ChatKey, ConversationMessage, FileChatStorage
from agent_memory.storage.file.directory import paths_of

KEY = ChatKey("user", "session", "agent")
IDS = (KEY.user_id, KEY.session_id, KEY.agent_id)


def users(count, prefix="message "):
    """Numbered messages of the user's."""
    return [ConversationMessage("user", f"{prefix}{number}") for number in range(1, count + 1)]


def log_of(root, key=KEY):
    """Where a chat's messages lie."""
    return root / paths_of(root, key).log


def raw_lines(path):
    """The lines of a file, their ends included."""
    return path.read_bytes().splitlines(keepends=True)


def parsed_lines(path):
    """The JSON of every line; fails when a line is none."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data[:-1].split(b"\n")]


def make_unreadable(path, position):
    """Damage the entry at a position, its length kept."""
    lines = raw_lines(path)
    for index, line in enumerate(lines):
        if line.startswith(b'{"position":%d,' % position):
            lines[index] = b"#" * (len(line) - 1) + b"\n"
    path.write_bytes(b"".join(lines))


async def saved(root, *batches, key=KEY, **options):
    """Save batches with a store of their own."""
    async with FileChatStorage(root, **options) as storage:
        for batch in batches:
            await storage.save_chat_messages(key.user_id, key.session_id, key.agent_id, batch)


async def fetched(root, key=KEY):
    """The raw messages that a store of its own reads."""
    async with FileChatStorage(root) as storage:
        return await storage.fetch_chat(key.user_id, key.session_id, key.agent_id)


async def entries(root, key=KEY):
    """The whole log that a store of its own reads."""
    async with FileChatStorage(root) as storage:
        log = storage.iter_log(key.user_id, key.session_id, key.agent_id)
        return [entry async for entry in log]


async def problems(root, *ids):
    """What a store of its own finds damaged."""
    async with FileChatStorage(root) as storage:
        return [problem async for problem in storage.verify(*ids)]


def run(work):
    """Run a coroutine where a test is not one itself."""
    return asyncio.run(work)
