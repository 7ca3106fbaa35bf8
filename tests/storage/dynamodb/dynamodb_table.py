"""Looking behind a DynamoDbChatStorage's back, and what its tests share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent_memory import ConversationMessage

IDS = ("user", "session", "agent")


def user(text="hello", **fields):
    return ConversationMessage("user", text, **fields)


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def advance(self, **duration):
        self.now += timedelta(**duration)


async def contents(storage, ids=IDS):
    return [message.content for message in await storage.fetch_chat(*ids)]


async def table_items(storage):
    """Return everything in the table."""
    await storage._ready()

    async def scan(backend):
        return await backend.table.scan(only=()).all()

    return await storage._in_loop(scan(storage._open_components))


async def items_of(storage, kind):
    """Return the items of one kind: ``b"l"`` log, ``b"p"`` parts, ``b"s"`` summaries."""
    return [item for item in await table_items(storage) if item["sk"]["B"].startswith(kind)]


async def remove(storage, items):
    """Delete items, as DynamoDB's TTL does."""

    async def delete(backend):
        await backend.table.delete_all(items)

    await storage._in_loop(delete(storage._open_components))
