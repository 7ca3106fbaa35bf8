"""What the tests of SqlChatStorage share."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from sqlalchemy import event

from agent_memory import ConversationMessage
from agent_memory.storage.sql.sqlite import SqliteConnection

IDS = "user", "session", "agent"


def user(content="hello", **fields):
    return ConversationMessage("user", content, **fields)


def contents(messages):
    return [message.content for message in messages]


async def ask(storage, text):
    """Run a statement behind the store's back and return its rows."""
    return await storage._query(lambda chats: chats.connection.exec_driver_sql(text).fetchall())


async def change(storage, *texts):
    """Run statements behind the store's back."""

    def work(chats):
        for text in texts:
            chats.connection.exec_driver_sql(text)

    await storage._write(work)


@contextmanager
def watched(storage, note):
    """Call `note("before" | "after", text)` around whatever a store's engine executes.

    ``COMMIT`` is a text too. SQLite's hot statements go to the driver directly, where
    SQLAlchemy's events do not see them.
    """
    engine = storage._parts().executor.engine
    listeners = {
        "before_cursor_execute": lambda *arguments: note("before", arguments[2]),
        "after_cursor_execute": lambda *arguments: note("after", arguments[2]),
        "commit": lambda _connection: note("before", "COMMIT"),
    }
    for kind, listener in listeners.items():
        event.listen(engine, kind, listener)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, "exec_driver_sql", _noting(note, "exec_driver_sql"))
        patch.setattr(SqliteConnection, "commit", _noting(note, "commit"))
        try:
            yield
        finally:
            for kind, listener in listeners.items():
                event.remove(engine, kind, listener)


def _noting(note, name):
    real = getattr(SqliteConnection, name)

    def noting(self, *arguments):
        text = arguments[0] if arguments else "COMMIT"
        note("before", text)
        result = real(self, *arguments)
        note("after", text)
        return result

    return noting


@contextmanager
def executed(storage):
    """Collect the texts of the statements that a store executes, ``BEGIN …`` left out."""
    seen = []

    def note(moment, text):
        if moment == "before" and not text.startswith("BEGIN"):
            seen.append(text)

    with watched(storage, note):
        yield seen
