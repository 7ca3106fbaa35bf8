"""SqlChatStorage keeps the contract on every engine."""

from __future__ import annotations

import functools

import pytest
from sqlalchemy import select, update

from agent_memory import SqlChatStorage
from agent_memory.storage.sql.statements import core
from agent_memory.testing import ChatStorageTests


class SqlContract(ChatStorageTests):
    async def corrupt(self, storage, key, position):
        parts = storage._parts()
        statements = parts.statements

        def spoil(connection):
            connection = core(connection)
            chats, entries = statements.tables.chats, statements.tables.entries
            values = statements.key_values(key)
            number = select(chats.c.number).where(*(chats.c[n] == v for n, v in values.items()))
            chat = connection.execute(number).scalar_one()
            here = entries.c.chat == chat, entries.c.position == position
            done = connection.execute(update(entries).where(*here).values(body='{"v":1,"id":'))
            assert done.rowcount == 1

        await parts.executor.write(spoil)


class TestSqliteFile(SqlContract):
    @pytest.fixture
    def make_storage(self, tmp_path):
        return functools.partial(SqlChatStorage, f"sqlite:///{tmp_path / 'chats.db'}")


@pytest.mark.matrix(but="differs_by_engine")
class TestSqliteMemory(SqlContract):
    @pytest.fixture
    def make_storage(self):
        return functools.partial(SqlChatStorage, "sqlite://")


class TestPostgres(SqlContract):
    @pytest.fixture
    def make_storage(self, postgres_url):
        return functools.partial(SqlChatStorage, postgres_url)


@pytest.mark.matrix(but="differs_by_engine")
class TestMariaDb(SqlContract):
    @pytest.fixture
    def make_storage(self, mariadb_url):
        return functools.partial(SqlChatStorage, mariadb_url)
