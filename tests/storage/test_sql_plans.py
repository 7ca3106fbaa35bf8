"""Servers find a part of a long chat by its places, whatever their statistics say."""

from __future__ import annotations

import re

import pytest
from sql_tools import IDS, change, user

from agent_memory import ChatKey, SqlChatStorage

READS = [("read_last", {"newest": 20}), ("read_first", {"first": 20}), ("read", {"after": 14_980})]


async def long_chat(url):
    storage = SqlChatStorage(url)
    for _ in range(5):
        await storage.save_chat_messages(*IDS, [user(f"{number}") for number in range(3_000)])
    return storage


def asked(statements, name, bounds):
    statement = getattr(statements, name)
    values = {**statements.key_values(ChatKey(*IDS)), "after": 0, **bounds}
    return statement, values


@pytest.mark.parametrize(("name", "bounds"), READS)
async def test_postgresql_reads_only_what_is_asked_for(postgres_url, name, bounds):
    """Before and after the server has gathered statistics, no plan looks at the rest."""

    def plan(chats):
        statement, values = asked(chats.statements, name, bounds)
        explained = f"EXPLAIN (ANALYZE) {statement.text}"
        rows = chats.connection.exec_driver_sql(explained, statement.arrange(values)).fetchall()
        return "\n".join(row[0] for row in rows)

    async with await long_chat(postgres_url) as storage:
        for _ in range(2):
            text = await storage._query(plan)
            assert "Seq Scan on agent_memory_entries" not in text
            counts = [int(count) for count in re.findall(r"actual time=\S+ rows=(\d+)", text)]
            assert max(counts) == 20
            await change(storage, "ANALYZE")


@pytest.mark.parametrize(("name", "bounds"), READS)
async def test_mariadb_reads_only_what_is_asked_for(mariadb_url, name, bounds):
    """The server's own counters tell how many rows it looked at."""

    def count(chats):
        connection = chats.connection
        statement, values = asked(chats.statements, name, bounds)
        connection.exec_driver_sql("FLUSH STATUS")
        assert len(statement.rows(connection, values)) == 20
        counters = connection.exec_driver_sql("SHOW SESSION STATUS").fetchall()
        reads = {"Handler_read_key", "Handler_read_next", "Handler_read_prev"}
        return sum(int(value) for counter, value in counters if counter in reads)

    async with await long_chat(mariadb_url) as storage:
        # The page in the index, and once more as the part that the chat's row is joined to.
        assert await storage._query(count) <= 2 * 20 + 10
