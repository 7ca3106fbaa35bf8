"""Stores to run the commands on."""

from __future__ import annotations

import pytest
from executable import with_store

import matrix
from agent_memory import ConversationMessage
from chats_to_move import HOSTILE, fill

HUGE = "x" * 3_000_000


async def _fill(storage):
    await fill(storage)
    name = f"eve {HOSTILE}"
    message = ConversationMessage("user", HOSTILE + HUGE + HOSTILE)
    await storage.save_chat_messages(name, name, name, [message])


@pytest.fixture(params=matrix.params(["sqlite", "files", "postgresql"], always=["sqlite"]))
def empty_store(request, tmp_path):
    """The URL of a store that holds nothing."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return {
        "sqlite": f"sqlite:///{tmp_path}/chats.db",
        "files": f"file:{tmp_path}/chats",
    }[request.param]


@pytest.fixture
def store(empty_store):
    """The URL of a store with hostile and huge content, notes, tool calls and summaries."""
    with_store(empty_store, _fill)
    return empty_store


@pytest.fixture
def small(tmp_path):
    """Three chats in SQLite, where the store makes no difference."""
    url = f"sqlite:///{tmp_path}/chats.db"
    with_store(url, fill)
    return url
