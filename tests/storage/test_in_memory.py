"""The reference store keeps the contract."""

from __future__ import annotations

import pytest

from agent_memory import InMemoryChatStorage
from agent_memory.testing import ChatStorageTests


class TestInMemory(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return InMemoryChatStorage
