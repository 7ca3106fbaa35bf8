"""PostgreSQL: lone saves, many at once, many processes; beside asyncpg and SQLAlchemy's session.

The server is a private one that does not wait for the disk (``fsync=off``): what is compared is
the work around a commit, for both sides the same.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_memory import ChatStorage
from benchmarks import saves
from benchmarks.contenders import Contender, Ours, text_of
from benchmarks.servers_here import postgres
from benchmarks.targets import Target, at_least, at_most

_url = ""

_TABLES = """
CREATE TABLE IF NOT EXISTS raw_chats (chat text PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE IF NOT EXISTS raw_messages (chat text, position bigint, role text, content text,
    PRIMARY KEY (chat, position));
CREATE TABLE IF NOT EXISTS raw_rows (number bigserial PRIMARY KEY, chat text, role text,
    content text);
"""


class OurPostgres(Ours):
    name = "agent_memory SqlChatStorage (PostgreSQL: fsync=off)"

    def make(self) -> ChatStorage:
        from agent_memory import SqlChatStorage  # noqa: PLC0415  (an extra)

        return SqlChatStorage(_url)


class RawAsyncpg(Contender):
    """Head row and message in one transaction, on a pool."""

    name = "raw asyncpg, head row + message, a transaction (fsync=off)"
    kind = "engine"

    async def open(self) -> None:
        asyncpg: Any = importlib.import_module("asyncpg")
        self._pool: Any = await asyncpg.create_pool(_url, min_size=5, max_size=10)
        await self._pool.execute(_TABLES)

    async def save(self, chat: str, number: int) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            position = await connection.fetchval(
                "INSERT INTO raw_chats VALUES ($1, 1) ON CONFLICT (chat) "
                "DO UPDATE SET last = raw_chats.last + 1 RETURNING last",
                chat,
            )
            await connection.execute(
                "INSERT INTO raw_messages VALUES ($1, $2, 'user', $3)",
                chat,
                position,
                text_of(number),
            )

    async def close(self) -> None:
        await self._pool.close()


class SessionRow(Contender):
    """A row at a time through SQLAlchemy's session and its pool."""

    name = "SQLAlchemy AsyncSession, a row and a commit (fsync=off)"

    async def open(self) -> None:
        from sqlalchemy import text  # noqa: PLC0415  (an extra)
        from sqlalchemy.ext.asyncio import (  # noqa: PLC0415  (an extra)
            async_sessionmaker,
            create_async_engine,
        )

        self._engine = create_async_engine(_url.replace("postgresql:", "postgresql+asyncpg:"))
        self._sessions = async_sessionmaker(self._engine)
        self._statement = text(
            "INSERT INTO raw_rows (chat, role, content) VALUES (:c, 'user', :t)"
        )

    async def save(self, chat: str, number: int) -> None:
        async with self._sessions() as session, session.begin():
            await session.execute(self._statement, {"c": chat, "t": text_of(number)})

    async def close(self) -> None:
        await self._engine.dispose()


def run(directory: Path, tiny: bool) -> list[Target]:
    """Measure it on a private server; nothing where there is none."""
    global _url  # noqa: PLW0603  (contenders are made without arguments)
    if importlib.util.find_spec("asyncpg") is None:
        print("asyncpg is not installed: PostgreSQL left out")
        return []
    with postgres() as url:
        if url is None:
            print("no PostgreSQL here: left out")
            return []
        _url = url
        sizes = (
            saves.Sizes((4,), samples=2, chats=4, rounds=1, seconds=0.0)
            if tiny
            else saves.Sizes((10,))
        )
        makers: Sequence[type[Contender]] = (RawAsyncpg, SessionRow, OurPostgres)
        rows = asyncio.run(saves.measure(makers, directory, sizes))
        print()
        saves.print_table(rows, sizes)
        found = _targets(rows)
        return found if tiny else [*found, scale_out(url)]


def _targets(rows: dict[type[Contender], saves.Row]) -> list[Target]:
    ours = rows[OurPostgres]
    return [
        at_most(
            "PostgreSQL fsync=off: lone save ÷ raw asyncpg's",
            saves.lone_ratio(ours, rows[RawAsyncpg]),
            3,
        ),
        at_least(
            "PostgreSQL fsync=off: many chats at once ÷ SQLAlchemy session, a row each",
            saves.rate_ratio(ours, rows[SessionRow]),
            3,
        ),
    ]


# ------------------------------------------------------------------------------- scale-out

_WORKER = """
import asyncio, sys, time
from agent_memory import SqlChatStorage
from benchmarks.contenders import message
async def main(url, worker, seconds):
    async with SqlChatStorage(url) as storage:
        await storage.save_chat_message("warm", "session", worker, message(0))
        print("ready", flush=True)
        sys.stdin.readline()
        ends, done = time.monotonic() + seconds, 0
        async def speak(chat):
            nonlocal done
            while time.monotonic() < ends:
                await storage.save_chat_message(worker, "session", f"{chat}", message(done))
                done += 1
        await asyncio.gather(*(speak(chat) for chat in range(int(sys.argv[4]))))
        print(done)
asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""


def scale_out(url: str, *, seconds: float = 2.0, chats: int = 1_000) -> Target:
    """Four processes against one: messages a second into a thousand chats."""
    one = asyncio.run(_rate(url, 1, seconds, chats))
    two = asyncio.run(_rate(url, 2, seconds, chats))
    four = asyncio.run(_rate(url, 4, seconds, chats))
    cores = os.cpu_count() or 1
    print(f"\n{cores} cores; processes: 1 → {one:,.0f} /s, 2 → {two:,.0f} /s, 4 → {four:,.0f} /s")
    return at_least("PostgreSQL fsync=off: 4 processes ÷ 1, a thousand chats", four / one, 1.0)


async def _rate(url: str, processes: int, seconds: float, chats: int) -> float:
    code = (sys.executable, "-c", _WORKER, url)
    workers = [
        await asyncio.create_subprocess_exec(
            *code,
            f"w{processes}-{number}-{time.time_ns()}",
            str(seconds),
            str(chats // processes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        await worker.stdout.readline()
    told = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
    return sum(int(output) for output, _ in told) / seconds
