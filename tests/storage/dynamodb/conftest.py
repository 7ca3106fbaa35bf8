"""Stores at one table of an emulator."""

from __future__ import annotations

import pytest
from dynamodb_faults import FaultyDynamoDb
from dynamodb_table import Clock

from agent_memory import DynamoDbChatStorage


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def make(dynamodb_endpoint, dynamodb_table):
    """Makes stores at one table; closes them."""
    stores = []

    def make(**options):
        options = {"endpoint_url": dynamodb_endpoint, "create_table": True, **options}
        stores.append(DynamoDbChatStorage(dynamodb_table, **options))
        return stores[-1]

    yield make
    for store in stores:
        await store.aclose()


@pytest.fixture
def storage(make):
    return make()


@pytest.fixture
async def proxy(dynamodb_endpoint):
    """A proxy in front of the emulator."""
    async with FaultyDynamoDb(dynamodb_endpoint) as proxy:
        yield proxy
