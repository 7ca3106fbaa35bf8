"""The shipped suite as a third party runs it: no configuration, pytest-asyncio in strict mode."""

from __future__ import annotations

import functools

import pytest

from agent_memory import FileChatStorage, InMemoryChatStorage, SqlChatStorage, WrapperChatStorage
from agent_memory.testing import ChatStorageTests


def wrapped() -> WrapperChatStorage:
    return WrapperChatStorage(InMemoryChatStorage())


class TestWrapper(ChatStorageTests):
    @pytest.fixture
    def make_storage(self):
        return wrapped


class TestSqlite(ChatStorageTests):
    saves_in_a_row = 100
    saves_per_process = 20

    @pytest.fixture
    def make_storage(self, tmp_path):
        return functools.partial(SqlChatStorage, f"sqlite:///{tmp_path}/chats.db")


class TestFiles(ChatStorageTests):
    saves_in_a_row = 100
    saves_per_process = 20

    @pytest.fixture
    def make_storage(self, tmp_path):
        return functools.partial(FileChatStorage, tmp_path / "chats")
