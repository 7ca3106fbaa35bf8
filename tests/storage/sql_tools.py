"""What the tests of SqlChatStorage share."""

from __future__ import annotations

from contextlib import contextmanager

from sqlalchemy import event

from agent_memory import ConversationMessage

IDS = "user", "session", "agent"


def user(content="hello", **fields):
    return ConversationMessage("user", content, **fields)


def contents(messages):
    return [message.content for message in messages]


async def ask(storage, text):
    """Run a statement behind the store's back and return its rows."""
    return await storage._query(
        lambda connection, _statements: connection.exec_driver_sql(text).fetchall()
    )


async def change(storage, *texts):
    """Run statements behind the store's back."""

    def work(connection, _statements):
        for text in texts:
            connection.exec_driver_sql(text)

    await storage._write(work)


@contextmanager
def counted(storage, kind):
    """Count events of a store's engine, such as its commits."""
    seen = []
    engine = storage._parts().runner.engine

    def note(*arguments):
        seen.append(arguments)

    event.listen(engine, kind, note)
    try:
        yield seen
    finally:
        event.remove(engine, kind, note)
