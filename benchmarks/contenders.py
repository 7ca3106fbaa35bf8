"""Who saves messages in the table: this library's stores, and the engines without it.

Each has a name that tells its durability. The engines' own programs are as quick as they can be
written: what they do is an append-only log of rows, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import sqlite3
import threading
import uuid
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from agent_memory import ChatStorage, ConversationMessage

TEXT = (
    "The ferry leaves at 7:40 and takes four hours; three adults and the van are 422 euros. "
    "The one at noon is cheaper by a third, has a restaurant, and arrives before dark, "
    "if you can live with the later bus to town."
)
"""A message of an ordinary length, 216 characters with its number."""

_FILL = 500


def text_of(number: int) -> str:
    return f"{number:06}. {TEXT}"


class Contender(ABC):
    """One way to keep messages.

    Args:
        directory: an empty one of its own.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "peer"
    longest: ClassVar[int] = 1_000_000
    """Chats longer than this take too long to fill."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def open(self) -> None:
        """Connect, and make what is needed."""

    @abstractmethod
    async def save(self, chat: str, number: int) -> None:
        """Save one message durably; returns when it is."""

    async def fill(self, chat: str, count: int) -> None:
        """Save so many messages in whatever way is quickest."""
        for number in range(count):
            await self.save(chat, number)

    async def newest(self, chat: str, count: int) -> list[str] | None:
        """Return what the newest messages of a chat say; None for those that are not measured."""
        return None

    async def close(self) -> None:
        """Let go of what was opened."""


class Ours(Contender):
    """A store of this library's."""

    kind = "ours"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.storage = self.make()

    @abstractmethod
    def make(self) -> ChatStorage:
        """Return a new store."""

    async def open(self) -> None:
        await self.storage.__aenter__()

    async def save(self, chat: str, number: int) -> None:
        await self.storage.save_chat_message("user", "session", chat, message(number))

    async def fill(self, chat: str, count: int) -> None:
        for start in range(0, count, _FILL):
            batch = [message(number) for number in range(start, min(start + _FILL, count))]
            await self.storage.save_chat_messages("user", "session", chat, batch)

    async def newest(self, chat: str, count: int) -> list[str] | None:
        messages = await self.storage.fetch_chat("user", "session", chat, count)
        return [found.content for found in messages]

    async def close(self) -> None:
        await self.storage.aclose()


def message(number: int) -> ConversationMessage:
    return ConversationMessage(("user", "assistant")[number % 2], text_of(number))


class OurSqlite(Ours):
    name = "agent_memory SqlChatStorage (SQLite: WAL, FULL)"

    def make(self) -> ChatStorage:
        from agent_memory import SqlChatStorage  # noqa: PLC0415  (an extra)

        return SqlChatStorage(f"sqlite:///{self._directory}/chats.db", durability="full")


class OurFiles(Ours):
    name = "agent_memory FileChatStorage (fsync)"

    def make(self) -> ChatStorage:
        from agent_memory import FileChatStorage  # noqa: PLC0415  (loaded when measured)

        return FileChatStorage(self._directory / "chats", durability="full")


class OurMemory(Ours):
    name = "agent_memory InMemoryChatStorage (nothing on disk)"

    def make(self) -> ChatStorage:
        from agent_memory import InMemoryChatStorage  # noqa: PLC0415  (as above)

        return InMemoryChatStorage()


_SQLITE_TABLES = """
CREATE TABLE chats (chat TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (chat TEXT, position INTEGER, role TEXT, content TEXT,
    PRIMARY KEY (chat, position)) WITHOUT ROWID;
CREATE TABLE rows (number INTEGER PRIMARY KEY, chat TEXT, role TEXT, content TEXT);
"""


class _RawSqlite(Contender):
    kind = "engine"
    isolation: ClassVar[str | None] = "DEFERRED"
    _db: Any

    async def open(self) -> None:
        import aiosqlite  # noqa: PLC0415  (of the benchmarks' own extra)

        self._db = await aiosqlite.connect(
            self._directory / "raw.db", isolation_level=self.isolation
        )
        await self._db.execute("PRAGMA journal_mode=WAL")
        await self._db.execute("PRAGMA synchronous=FULL")
        await self._db.executescript(_SQLITE_TABLES)

    async def fill(self, chat: str, count: int) -> None:
        rows = [(chat, "user", text_of(number)) for number in range(count)]
        await self._db.executemany(_ROW, rows)
        await self._db.commit()

    async def close(self) -> None:
        await self._db.close()


_ROW = "INSERT INTO rows (chat, role, content) VALUES (?, ?, ?)"


class RawRow(_RawSqlite):
    """A row that commits itself: one hop to the thread, and nobody shares a commit."""

    name = "raw aiosqlite, a row and a commit (WAL, FULL)"
    isolation = None

    async def save(self, chat: str, number: int) -> None:
        await self._db.execute(_ROW, (chat, "user", text_of(number)))


class RawLog(_RawSqlite):
    """What a log needs: the chat's row counts, the message's row holds; one transaction."""

    name = "raw aiosqlite, head row + message, a transaction (WAL, FULL)"

    async def open(self) -> None:
        await super().open()
        self._lock = asyncio.Lock()

    async def save(self, chat: str, number: int) -> None:
        async with self._lock:  # else one task's commit would end another's transaction
            cursor = await self._db.execute(
                "INSERT INTO chats VALUES (?, 1) ON CONFLICT DO UPDATE SET last = last + 1 "
                "RETURNING last",
                (chat,),
            )
            (row,) = await cursor.fetchall()
            values = (chat, row[0], "user", text_of(number))
            await self._db.execute("INSERT INTO messages VALUES (?, ?, ?, ?)", values)
            await self._db.commit()

    async def fill(self, chat: str, count: int) -> None:
        rows = [(chat, number + 1, "user", text_of(number)) for number in range(count)]
        await self._db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
        await self._db.execute("INSERT INTO chats VALUES (?, ?)", (chat, count))
        await self._db.commit()


class RawBatch(_RawSqlite):
    """Sixty-four rows a commit: what the engine could do for callers who can wait."""

    name = "raw aiosqlite, 64 rows a commit (WAL, FULL)"
    longest = 0  # no single save

    async def save(self, chat: str, number: int) -> None:
        rows = [(chat, "user", text_of(number + row)) for row in range(64)]
        await self._db.executemany(_ROW, rows)
        await self._db.commit()


class GroupCommit(Contender):
    """The least program that does what a store on SQLite does, without its checks.

    A message is made, with an id and a time, and encoded; a thread takes what waits, raises the
    chats' rows, inserts the messages, commits once and wakes the callers once. No id is looked
    up, no error is told apart, nothing is cancelled safely.
    """

    name = "sqlite3, minimal group commit without checks (WAL, FULL)"
    kind = "engine"

    async def open(self) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        arguments = self._directory / "minimal.db", self._jobs
        self._thread = threading.Thread(target=_serve_groups, args=arguments, daemon=True)
        self._thread.start()

    async def save(self, chat: str, number: int) -> None:
        fields = {
            "id": str(uuid.uuid4()),
            "role": "user",
            "content": text_of(number),
            "timestamp": datetime.now(UTC).isoformat(),
        }
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._jobs.put((("user", "session", chat), json.dumps(fields), done, loop))
        await done

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)


_GROUP_TABLES = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE chats (number INTEGER PRIMARY KEY, user_id TEXT, session_id TEXT, agent_id TEXT,
    last INTEGER, UNIQUE (user_id, session_id, agent_id));
CREATE TABLE messages (chat INTEGER, position INTEGER, body TEXT, PRIMARY KEY (chat, position));
"""
_RAISE_HEAD = (
    "INSERT INTO chats (user_id, session_id, agent_id, last) VALUES (?, ?, ?, 1) "
    "ON CONFLICT DO UPDATE SET last = last + 1 RETURNING number, last"
)


def _serve_groups(path: Path, jobs: queue.SimpleQueue[Any]) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(_GROUP_TABLES)
    while (job := jobs.get()) is not None:
        group = [job]
        with contextlib.suppress(queue.Empty):
            while True:
                group.append(jobs.get_nowait())
        database.execute("BEGIN IMMEDIATE")
        rows = [
            (*database.execute(_RAISE_HEAD, key).fetchone(), body)
            for key, body, _done, _loop in group
        ]
        database.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")
        job[3].call_soon_threadsafe(_wake, [done for _key, _body, done, _loop in group])
    database.close()


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        done.set_result(None)


class RawFiles(Contender):
    """Append a line and sync, in the thread that calls."""

    name = "raw file, append + fsync, one thread"
    kind = "engine"

    async def open(self) -> None:
        self._files: dict[str, int] = {}

    async def save(self, chat: str, number: int) -> None:
        file = self._file(chat)
        os.write(file, f'{{"role":"user","content":"{text_of(number)}"}}\n'.encode())
        os.fsync(file)

    async def fill(self, chat: str, count: int) -> None:
        lines = (f'{{"role":"user","content":"{text_of(n)}"}}\n' for n in range(count))
        os.write(self._file(chat), "".join(lines).encode())

    async def close(self) -> None:
        for file in self._files.values():
            os.close(file)

    def _file(self, chat: str) -> int:
        file = self._files.get(chat)
        if file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            file = self._files[chat] = os.open(self._directory / chat, flags, 0o600)
        return file
