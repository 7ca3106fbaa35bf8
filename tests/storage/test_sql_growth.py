"""Reading a part of a chat costs SQLite the same in a long chat as in a short one."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from agent_memory.storage.sql.schema import make_tables
from agent_memory.storage.sql.statements import Statements

READS = {
    "the newest": ("read_last", lambda length: {"after": 0, "newest": 20}),
    "the newest after a position": ("read_last", lambda length: {"after": 50, "newest": 20}),
    "the oldest": ("read_first", lambda length: {"after": 0, "first": 20}),
    "what follows a position": ("read", lambda length: {"after": length - 20}),
}


def steps_to_read(name: str, values: dict, length: int) -> int:
    """Count the steps of SQLite's virtual machine for one read of a chat of some length."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with closing(engine.raw_connection()) as pooled:
        tables = make_tables("x_", None)
        tables.chats.metadata.create_all(engine)
        raw: sqlite3.Connection = pooled.driver_connection
        raw.execute("INSERT INTO x_chats VALUES (1, 'u', 's', 'a', 0, ?, 0, 0)", [length])
        entries = ((1, at, f"{at:09}", 0, "{}") for at in range(1, length + 1))
        raw.executemany("INSERT INTO x_entries VALUES (?, ?, ?, ?, ?)", entries)
        statement = getattr(Statements(tables, engine.dialect), name)
        key = {"user_id": "u", "session_id": "s", "agent_id": "a"}
        steps = []
        raw.set_progress_handler(lambda: steps.append(1), 1)
        rows = raw.execute(statement.text, statement.arrange({**key, **values})).fetchall()
        raw.set_progress_handler(None, 1)
        assert len(rows) == 20
    engine.dispose()
    return len(steps)


@pytest.mark.parametrize("read", READS)
def test_a_read_does_not_step_over_the_rest_of_the_log(read):
    """Twenty messages take about as many steps among 20,000 as among 200."""
    name, values = READS[read]
    short, long = (steps_to_read(name, values(length), length) for length in (200, 20_000))
    assert long < 2 * short
