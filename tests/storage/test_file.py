"""The file store keeps the contract."""

from __future__ import annotations

from functools import partial

import pytest

from agent_memory import FileChatStorage
from agent_memory.testing import ChatStorageTests


class TestFile(ChatStorageTests):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return partial(FileChatStorage, tmp_path / "chats")
