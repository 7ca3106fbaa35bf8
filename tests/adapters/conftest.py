"""What the tests of all adapters share. They run in the environment of their framework alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import ChatStorage, DynamoDbChatStorage, SqlChatStorage

_HERE = Path(__file__).parent

# The main environment has none of the frameworks, and each of theirs has only its own.
collect_ignore = [
    path.name for path in _HERE.iterdir() if path.is_dir() and path.name != Path(sys.prefix).name
]


@pytest.fixture(params=["sqlite", "dynamodb"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ChatStorage]:
    """Gives a new store object over the same medium each time it is called: a restart."""
    if request.param == "sqlite":
        return lambda: SqlChatStorage(f"sqlite:///{tmp_path}/chats.db")
    endpoint = request.getfixturevalue("moto_endpoint")
    table = request.getfixturevalue("dynamodb_table")
    return lambda: DynamoDbChatStorage(table, endpoint_url=endpoint, create_table=True)
