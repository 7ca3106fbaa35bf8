"""The stores that are measured, each under a name that tells its durability."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs

from agent_memory import ChatStorage, FileChatStorage, InMemoryChatStorage, SqlChatStorage
from agent_memory.storage.urls import open_storage, without_secrets
from benchmarks.servers_here import mariadb, postgres


@attrs.frozen
class StoreCase:
    """A store to measure.

    Args:
        name: the store and when a save of it has returned.
        make: gives a new store object.
    """

    name: str
    make: Callable[[], ChatStorage]


def embedded(directory: Path) -> list[StoreCase]:
    """Return the stores that need no server."""
    return [
        StoreCase("memory (nothing on disk)", InMemoryChatStorage),
        StoreCase(
            "files (fsync each save)",
            lambda: FileChatStorage(directory / "synced", durability="full"),
        ),
        StoreCase(
            "files (left to the system)",
            lambda: FileChatStorage(directory / "unsynced", durability="os"),
        ),
        StoreCase(
            "SQLite (WAL, synchronous=FULL)",
            lambda: SqlChatStorage(f"sqlite:///{directory}/full.db", durability="full"),
        ),
        StoreCase(
            "SQLite (WAL, synchronous=NORMAL)",
            lambda: SqlChatStorage(f"sqlite:///{directory}/normal.db", durability="normal"),
        ),
    ]


def servers(urls: Sequence[str]) -> list[StoreCase]:
    """Return the stores behind URLs; they are as durable as their servers are set up."""
    return [_server(url) for url in urls]


@contextlib.contextmanager
def started() -> Iterator[list[StoreCase]]:
    """Give the stores on servers that are started for it; those that are not here are left out."""
    with postgres() as first, mariadb() as second:
        named = ("PostgreSQL (fsync=off)", first), ("MariaDB (log flushed each second)", second)
        yield [StoreCase(name, partial(open_storage, url)) for name, url in named if url]


def _server(url: str) -> StoreCase:
    kind = re.split(r"[:?]", without_secrets(url))[0]
    return StoreCase(f"{kind} (as set up there)", lambda: open_storage(url))
