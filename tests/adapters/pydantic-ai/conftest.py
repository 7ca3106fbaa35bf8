"""One chat in memory, as Pydantic AI's history."""

from __future__ import annotations

import pytest

from agent_memory import InMemoryChatStorage
from agent_memory.adapters.pydantic_ai import AgentMemoryHistory


@pytest.fixture
def storage():
    return InMemoryChatStorage()


@pytest.fixture
def history(storage):
    return AgentMemoryHistory(storage, user_id="u", session_id="s", agent_id="a")
