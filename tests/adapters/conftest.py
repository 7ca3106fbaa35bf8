"""What the tests of all adapters share. They run in the environment of their framework alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import (
    ChatStorage,
    DynamoDbChatStorage,
    FileChatStorage,
    InMemoryChatStorage,
    SqlChatStorage,
)

_HERE = Path(__file__).parent

# The main environment has none of the frameworks, and each of theirs has only its own.
collect_ignore = [
    path.name for path in _HERE.iterdir() if path.is_dir() and path.name != Path(sys.prefix).name
]


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], ChatStorage]:
    """Makes a store of a kind: each time another object over the same medium."""

    def make(kind: str) -> ChatStorage:
        if kind == "memory":
            return InMemoryChatStorage()
        if kind == "file":
            return FileChatStorage(tmp_path / "chats")
        if kind == "sqlite":
            return SqlChatStorage(f"sqlite:///{tmp_path}/chats.db")
        endpoint = request.getfixturevalue("quick_dynamodb_endpoint")
        table = request.getfixturevalue("dynamodb_table")
        return DynamoDbChatStorage(table, endpoint_url=endpoint, create_table=True)

    return make


@pytest.fixture(params=["sqlite", "dynamodb"])
def open_store(
    request: pytest.FixtureRequest, make_store: Callable[[str], ChatStorage]
) -> Callable[[], ChatStorage]:
    """Gives a new store object over the same medium each time it is called: a restart."""
    return lambda: make_store(request.param)
