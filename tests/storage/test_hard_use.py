"""Many processes, kills and deletions on every store that outlives a process."""

from __future__ import annotations

import functools

import pytest

import matrix
from agent_memory import DynamoDbChatStorage, FileChatStorage, SqlChatStorage
from storage.hard_use import HardSoak, HardUse


@pytest.fixture(
    params=matrix.params(["sqlite", "files", "postgres", "mariadb"], always=["sqlite", "files"])
)
def make_storage(request, tmp_path):
    if request.param == "files":
        return functools.partial(FileChatStorage, tmp_path / "chats")
    if request.param == "sqlite":
        return functools.partial(SqlChatStorage, f"sqlite:///{tmp_path / 'chats.db'}")
    return functools.partial(SqlChatStorage, request.getfixturevalue(f"{request.param}_url"))


class OnDynamoDb:
    # Seconds. moto reads a chat's end in time proportional to its length, unlike DynamoDB: of
    # several writers to a long chat one that has lost a place may lose the next ones as well.
    patience = 120
    store = "dynamodb (moto)"

    @pytest.fixture
    def make_storage(self, dynamodb_endpoint, dynamodb_table):
        return functools.partial(
            DynamoDbChatStorage,
            dynamodb_table,
            "eu-central-1",
            endpoint_url=dynamodb_endpoint,
            create_table=True,
            timeout=self.patience,
        )


class TestHardUse(HardUse):
    pass


@pytest.mark.matrix
class TestHardUseOfDynamoDb(OnDynamoDb, HardUse):
    pass


@pytest.mark.soak
class TestHardSoak(HardSoak):
    pass


@pytest.mark.soak
class TestHardSoakOfDynamoDb(OnDynamoDb, HardSoak):
    pass
