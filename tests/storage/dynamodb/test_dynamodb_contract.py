"""DynamoDbChatStorage keeps the contract, on both emulators."""

from __future__ import annotations

import functools
from typing import ClassVar

import pytest

from agent_memory import DynamoDbChatStorage
from agent_memory.testing import ChatStorageTests


class OnDynamoDb(ChatStorageTests):
    options: ClassVar = {}

    @pytest.fixture
    def make_storage(self, dynamodb_endpoint, dynamodb_table):
        return functools.partial(
            DynamoDbChatStorage,
            dynamodb_table,
            endpoint_url=dynamodb_endpoint,
            create_table=True,
            **self.options,
        )

    async def corrupt(self, storage, key, position):
        """Spoil one message's line in its item, as a slip of the hand in the console would."""

        async def spoil(backend):
            raw = await backend.reader.read(key, after=position - 1, first=1)
            item, body = raw.held[0]
            lines = body.split("\n")
            lines[position - item.sort_key.position - item.skip] = '{"v":1,"id":'
            spoiled = backend.writer.attributes(key, item) | {"text": {"S": "\n".join(lines)}}
            await backend.table.put_all([spoiled], key)

        await storage._in_loop(spoil(storage._open_components))


class TestDynamoDb(OnDynamoDb):
    """With counts that emulators take in seconds."""

    saves_in_a_row = 250
    saves_per_process = 60
    listed_chats = 60
    cancelled_steps = 20


@pytest.mark.soak  # the same with the suite's own counts
class TestDynamoDbAtLength(OnDynamoDb):
    pass


@pytest.mark.matrix
class TestDynamoDbExpiring(OnDynamoDb):
    """Nothing changes for messages that live for a day."""

    saves_in_a_row = 250
    saves_per_process = 60
    listed_chats = 60
    cancelled_steps = 20

    options: ClassVar = {"ttl_seconds": 86_400}
