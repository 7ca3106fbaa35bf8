"""C104: a large read is decoded where nobody else waits, on every store that decodes."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from agent_memory import DynamoDbChatStorage, FileChatStorage, SqlChatStorage
from agent_memory.storage import codec
from rig import IDS, dialogue

COUNT = 2_000


@pytest.fixture(params=["file", "sqlite", "postgres", "mariadb", "dynamodb", "callers engine"])
async def storage(request, tmp_path):
    engine = None
    if request.param == "callers engine":
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'chats.db'}")
    async with SqlChatStorage(engine) if engine else make(request, tmp_path) as storage:
        yield storage
    if engine:
        await engine.dispose()


def make(request, tmp_path):
    match request.param:
        case "file":
            return FileChatStorage(tmp_path / "chats")
        case "sqlite":
            return SqlChatStorage(f"sqlite:///{tmp_path / 'chats.db'}")
        case "dynamodb":
            endpoint = request.getfixturevalue("quick_dynamodb_endpoint")
            table = request.getfixturevalue("dynamodb_table")
            return DynamoDbChatStorage(
                table, "eu-central-1", endpoint_url=endpoint, create_table=True
            )
        case server:
            return SqlChatStorage(request.getfixturevalue(f"{server}_url"))


@pytest.fixture
def decoded(monkeypatch):
    """How many messages each thread has decoded, by its number."""
    counts = {}
    real = codec.stored_message

    def counting(*fields):
        here = threading.get_ident()
        counts[here] = counts.get(here, 0) + 1
        return real(*fields)

    monkeypatch.setattr(codec, "stored_message", counting)
    return counts


async def test_c104_the_callers_loop_decodes_nothing_of_a_large_read(storage, decoded):
    """All of it is read, and the thread of the loop stays free for others."""
    messages = dialogue(COUNT)
    for start in range(0, COUNT, 500):
        await storage.save_chat_messages(*IDS, messages[start : start + 500])
    reads = [
        await storage.fetch_chat(*IDS),
        await storage.fetch_chat_since(*IDS, 0),
        await storage.fetch_all_chats(*IDS[:2]),
    ]
    assert reads == [messages] * 3
    assert decoded.pop(threading.get_ident(), 0) == 0
    assert sum(decoded.values()) >= 3 * COUNT
