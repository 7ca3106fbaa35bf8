"""Reading from a database that belongs to somebody else: nothing is written to it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from sqlalchemy import Connection, Select, create_engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agent_memory.audit.pages import in_thread
from agent_memory.errors import StorageUnavailableError
from agent_memory.storage.sql.urls import Target

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

_PART: Final = 100
"""Rows held at a time: one of them may hold a whole file."""


class Reader(ABC):
    """Runs queries on one database."""

    @abstractmethod
    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return what a function makes of a connection."""

    @abstractmethod
    def stream(self, query: Select[Any]) -> AsyncIterator[Rows]:
        """Yield the rows of a query, some at a time."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of the database."""


@contextmanager
def _errors(shown: str) -> Generator[None]:
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        # The driver's own words, without the statement and a link to an explanation.
        cause = getattr(error, "orig", None) or error
        raise StorageUnavailableError(f"{shown} cannot be read: {cause}") from error


class FileReader(Reader):
    """Reads a SQLite file, opened so that it cannot be changed.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._shown = str(path)
        name = quote(str(path.absolute()))
        self._engine = create_engine(
            f"sqlite:///file:{name}?mode=ro&uri=true",
            poolclass=NullPool,
            connect_args={"check_same_thread": False},  # one thread at a time, not always one
        )

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return what a function makes of a connection."""
        return await asyncio.to_thread(self._run, work)

    def stream(self, query: Select[Any]) -> AsyncIterator[Rows]:
        """Yield the rows of a query, some at a time."""
        return in_thread(self._parts(query))

    async def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def _run(self, work: Callable[[Connection], T]) -> T:
        with _errors(self._shown), self._engine.connect() as connection:
            return work(connection)

    def _parts(self, query: Select[Any]) -> Iterator[Rows]:
        with _errors(self._shown), self._engine.connect() as connection:
            result = connection.execution_options(yield_per=_PART).execute(query)
            for part in result.partitions():
                yield [tuple(row) for row in part]


class ServerReader(Reader):
    """Reads a database behind a URL.

    Args:
        target: the URL, understood.
    """

    def __init__(self, target: Target) -> None:
        self._shown = target.shown
        self._engine = create_async_engine(
            cast("Any", target.url), poolclass=NullPool, connect_args=dict(target.connect_args)
        )

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Return what a function makes of a connection."""
        with _errors(self._shown):
            async with self._engine.connect() as connection:
                return await connection.run_sync(work)

    async def stream(self, query: Select[Any]) -> AsyncIterator[Rows]:
        """Yield the rows of a query, some at a time."""
        with _errors(self._shown):
            async with self._engine.connect() as connection:
                result = await connection.stream(query, execution_options={"yield_per": _PART})
                async for part in result.partitions():
                    yield [tuple(row) for row in part]

    async def close(self) -> None:
        """Let go of the database."""
        await self._engine.dispose()
