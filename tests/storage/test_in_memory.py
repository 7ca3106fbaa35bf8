"""The reference store keeps the contract."""

from __future__ import annotations

import pytest

from agent_memory import InMemoryChatStorage
from agent_memory.testing import ChatStorageTests


class TestInMemory(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return InMemoryChatStorage


async def test_c12_reading_a_thousand_unknown_chats_leaves_nothing_behind():
    """Behind the store's back: no chat was made."""
    storage = InMemoryChatStorage()
    for number in range(1_000):
        await storage.fetch_chat("user", "session", f"agent {number}")
        await storage.delete_chat("user", "session", f"agent {number}")
    assert storage._chats == {}
