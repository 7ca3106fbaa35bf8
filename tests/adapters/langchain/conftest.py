"""LangChain's histories: the thread of their blocking calls is the process's, and stays."""

from __future__ import annotations

import pytest

from agent_memory import InMemoryChatStorage
from agent_memory.adapters.langchain import AgentMemoryChatMessageHistory

# Started before the first test, so that it does not count as left behind by one.
assert not AgentMemoryChatMessageHistory(
    InMemoryChatStorage(), user_id="user", session_id="session"
).messages


@pytest.fixture
def storage():
    return InMemoryChatStorage()


@pytest.fixture
def history(storage):
    return AgentMemoryChatMessageHistory(storage, user_id="u", session_id="s", agent_id="a")
