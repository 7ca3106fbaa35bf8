"""The whole contract through wrappers around every store.

The summarizing wrapper is given a summarizer that always fails and a trigger of two pairs: so
every chat of more than four messages is answered from its view, and the view must be the raw log.
"""

from __future__ import annotations

import functools

import pytest

from agent_memory import (
    DynamoDbChatStorage,
    FileChatStorage,
    InMemoryChatStorage,
    SqlChatStorage,
)
from agent_memory.testing import ChatStorageTests
from wrapped_stores import summarizing_in_vain, transforming


class FewerCounts(ChatStorageTests):
    """The bare stores take the large counts; around them the paths count, not the amounts."""

    large_message_bytes = 500_000
    saves_in_a_row = 100
    saves_per_process = 20
    listed_chats = 20
    cancelled_steps = 15


class OnMemory(FewerCounts):
    @pytest.fixture
    def make_inner(self):
        return InMemoryChatStorage


class OnFiles(FewerCounts):
    @pytest.fixture
    def make_inner(self, tmp_path):
        return functools.partial(FileChatStorage, tmp_path / "chats")


class OnSqlite(FewerCounts):
    @pytest.fixture
    def make_inner(self, tmp_path):
        return functools.partial(SqlChatStorage, f"sqlite:///{tmp_path / 'chats.db'}")


class OnPostgres(FewerCounts):
    @pytest.fixture
    def make_inner(self, postgres_url):
        return functools.partial(SqlChatStorage, postgres_url)


class OnMariaDb(FewerCounts):
    @pytest.fixture
    def make_inner(self, mariadb_url):
        return functools.partial(SqlChatStorage, mariadb_url)


class OnDynamoDb(FewerCounts):
    @pytest.fixture
    def make_inner(self, quick_dynamodb_endpoint, dynamodb_table):
        return functools.partial(
            DynamoDbChatStorage,
            dynamodb_table,
            "eu-central-1",
            endpoint_url=quick_dynamodb_endpoint,
            create_table=True,
        )


class Summarized:
    @pytest.fixture
    def make_storage(self, make_inner):
        return functools.partial(summarizing_in_vain, make_inner)


class Transformed:
    @pytest.fixture
    def make_storage(self, make_inner):
        return functools.partial(transforming, make_inner)


@pytest.mark.matrix
class TestSummarizedMemory(Summarized, OnMemory):
    pass


@pytest.mark.matrix
class TestSummarizedFiles(Summarized, OnFiles):
    pass


@pytest.mark.matrix(only=["test_c20_two_processes_save_to_one_chat"])
class TestSummarizedSqlite(Summarized, OnSqlite):
    pass


@pytest.mark.matrix(but="differs_by_engine")
@pytest.mark.matrix(only=["test_c20_two_processes_save_to_one_chat"])
class TestSummarizedPostgres(Summarized, OnPostgres):
    pass


@pytest.mark.matrix
class TestSummarizedMariaDb(Summarized, OnMariaDb):
    pass


@pytest.mark.matrix
class TestSummarizedDynamoDb(Summarized, OnDynamoDb):
    pass


@pytest.mark.matrix
class TestTransformedFiles(Transformed, OnFiles):
    pass


@pytest.mark.matrix
class TestTransformedSqlite(Transformed, OnSqlite):
    pass
