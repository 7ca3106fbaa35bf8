"""The embedded backends, as one process after another has them."""

from __future__ import annotations

from functools import partial

import pytest

from agent_memory import (
    FileChatStorage,
    InMemoryChatStorage,
    SqlChatStorage,
    WrapperChatStorage,
)


@pytest.fixture(params=["memory", "sqlite", "file"])
async def reopen(request, tmp_path):
    """Gives a new storage object over the same medium, as the next process has it."""
    memory = InMemoryChatStorage()
    make = {
        "memory": lambda: _Kept(memory),
        "sqlite": partial(SqlChatStorage, f"sqlite:///{tmp_path / 'chats.db'}"),
        "file": partial(FileChatStorage, tmp_path / "chats"),
    }[request.param]
    opened = []

    def again():
        opened.append(make())
        return opened[-1]

    yield again
    for storage in opened:
        await storage.aclose()


class _Kept(WrapperChatStorage):
    """Memory that several processes would share, if there were such a thing."""

    def __init__(self, storage):
        super().__init__(storage, close_inner=False)

    @property
    def scope(self):
        return "host"
