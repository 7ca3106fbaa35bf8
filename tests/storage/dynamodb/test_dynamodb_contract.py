"""DynamoDbChatStorage keeps the contract, on both emulators."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest
from dynamodb_table import user

from agent_memory import DynamoDbChatStorage
from agent_memory.testing import ChatStorageTests


def an_hour_later():
    return datetime.now(UTC) + timedelta(hours=1)


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

    async def test_purge_takes_what_deletes_left(self, storage, make_storage):
        """An hour later: until then other writers may rely on what they know of the chat."""
        await storage.save_chat_messages("user", "session", "agent", [user(), user()])
        await storage.delete_chat("user", "session", "agent")
        assert await storage.purge(timedelta(0)) == 0
        async with make_storage(clock=an_hour_later) as later:
            assert await later.purge(timedelta(0)) == 1
            assert await later.purge(timedelta(0)) == 0
            (saved,) = await later.save_chat_message("user", "session", "agent", user())
        assert saved.position == 1

    async def corrupt(self, storage, key, position):
        """Spoil one message's line in its item, as a slip of the hand in the console would."""

        async def spoil(backend):
            items, _ = await backend.reader._window(key, position - 1, 1, None)
            (item,) = [item for item in items if position in item.positions]
            lines = (await backend.reader.body(key, item)).split("\n")
            lines[item.positions.index(position)] = '{"v":1,"id":'
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
