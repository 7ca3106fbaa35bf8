"""What the tests of conversations share: stores that can be opened again, and the model."""

from __future__ import annotations

import uuid

import pytest

import matrix
from agent_memory import InMemoryChatStorage, LLMSummarizer, OpenAIChatModel, SqlChatStorage
from agent_memory.summarizers import Retry
from engines import in_thread, postgres_execute, with_path
from model_server import ModelServer


class Stores:
    """Stores over the same data, as several workers, or one after a restart, open them."""

    def __init__(self, url):
        self._url = url
        self._opened = []

    def open(self):
        """Another store over the data; in memory, where there is but one, that one."""
        if self._url is not None:
            self._opened.append(SqlChatStorage(self._url))
        elif not self._opened:
            self._opened.append(InMemoryChatStorage())
        return self._opened[-1]

    async def close(self):
        for storage in self._opened:
            await storage.aclose()


@pytest.fixture(scope="session")
def conversations_url(postgres_server):
    """One PostgreSQL database for all these tests: making one for each would take minutes."""
    name = f"conversations_{uuid.uuid4().hex}"
    in_thread(postgres_execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE template0"))
    yield with_path(postgres_server, f"/{name}")
    in_thread(postgres_execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def emptied_url(conversations_url):
    yield conversations_url
    tables = "agent_memory_chats, agent_memory_entries, agent_memory_records"
    in_thread(postgres_execute(conversations_url, f"TRUNCATE {tables} CASCADE"))


@pytest.fixture(
    params=matrix.params(["memory", "sqlite", "postgres"], always=["memory", "sqlite"])
)
async def stores(request, tmp_path):
    urls = {"memory": None, "sqlite": f"sqlite:///{tmp_path / 'chats.db'}"}
    if request.param == "postgres":
        urls["postgres"] = request.getfixturevalue("emptied_url")
    stores = Stores(urls[request.param])
    yield stores
    await stores.close()


@pytest.fixture
def storage(stores):
    return stores.open()


@pytest.fixture
async def server():
    async with ModelServer() as running:
        yield running


@pytest.fixture
def llm(server):
    """Makes a summarizer that asks the scripted server."""

    def make(token_threshold=400, keep_recent_count=2, **options):
        model = OpenAIChatModel(server.client(), "test-model")
        options.setdefault("retry", Retry(attempts=1))
        return LLMSummarizer(
            model,
            token_threshold=token_threshold,
            keep_recent_count=keep_recent_count,
            **options,
        )

    return make
