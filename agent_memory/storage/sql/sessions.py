"""How a function gets to a connection, a transaction, and another attempt."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine

from agent_memory.storage.sql.errors import (
    VENDOR_ERRORS,
    Failure,
    TransactionFailedError,
    is_rolled_back,
    kind_of,
)

T = TypeVar("T")

_DELAYS: Final = (0.02, 0.1, 0.4, 1.0)
"""Seconds before the second, third, … attempt, each multiplied by 0.5 to 1.5 at random."""


class Session:
    """Runs functions of a ``Connection`` on one engine.

    It is plain blocking code. For an async engine it runs inside a greenlet, where SQLAlchemy
    turns what blocks into what is awaited; so there is one implementation for all engines.

    Args:
        engine: where connections come from.
        pause: how to wait so many seconds between attempts.
        begin: a statement that begins a transaction, where SQLAlchemy leaves that to us.
        keep: whether to keep one connection open instead of taking one from the pool each
            time; only for one thread's use.
        attempts: how often a function may be run when the failure allows it.
    """

    def __init__(
        self,
        engine: Engine,
        pause: Callable[[float], None],
        *,
        begin: str | None = None,
        keep: bool = False,
        attempts: int = len(_DELAYS) + 1,
    ) -> None:
        self.engine = engine
        self._pause = pause
        self._begin = begin
        self._keep = keep
        self._kept: Connection | None = None
        self._delays = _DELAYS[: attempts - 1]

    def transact(self, work: Callable[[Connection], T], *, repeatable: bool) -> T:
        """Run `work` in a transaction and commit it.

        Args:
            work: may be run again after a deadlock, a serialisation failure or a lost connection.
            repeatable: whether it may also be run again when the connection was lost at the
                commit, so that it may have been stored already.

        Raises:
            TransactionFailedError: it failed for good.
        """
        stored: bool | None = False
        for delay in (*self._delays, None):
            committing = False
            try:
                with self._connection() as connection, _undone(connection):
                    self._start(connection)
                    result = work(connection)
                    committing = True
                    connection.commit()
                    return result
            except VENDOR_ERRORS as error:
                if committing and not is_rolled_back(error):
                    stored = None
                if delay is None or not _again(error, stored=stored, repeatable=repeatable):
                    raise TransactionFailedError(error, stored=stored) from error
                self._pause(delay * random.uniform(0.5, 1.5))  # noqa: S311  jitter
        raise AssertionError("unreachable")

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads and may be run again; one statement, hence one snapshot.

        Raises:
            TransactionFailedError: it failed for good.
        """
        for delay in (*self._delays, None):
            try:
                with self._connection() as connection, _undone(connection):
                    return work(connection)
            except VENDOR_ERRORS as error:
                if delay is None or not _again(error, stored=False, repeatable=True):
                    raise TransactionFailedError(error, stored=False) from error
                self._pause(delay * random.uniform(0.5, 1.5))  # noqa: S311  jitter
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connection that was kept."""
        if self._kept is not None:
            with contextlib.suppress(*VENDOR_ERRORS):  # it is given up in any case
                self._kept.close()
            self._kept = None

    def _start(self, connection: Connection) -> None:
        if self._begin is not None:
            # Straight to the driver: this stands before each save.
            connection.connection.cursor().execute(self._begin)

    @contextlib.contextmanager
    def _connection(self) -> Generator[Connection]:
        if not self._keep:
            with self.engine.connect() as connection:
                yield connection
            return
        if self._kept is None:
            self._kept = self.engine.connect()
        yield self._kept


@contextlib.contextmanager
def _undone(connection: Connection) -> Generator[None]:
    """Roll back what is not committed; SQLAlchemy does so itself for what the pool lends."""
    try:
        yield
    finally:
        # What matters is the error that brought us here, if any.
        with contextlib.suppress(*VENDOR_ERRORS):
            connection.rollback()


def _again(error: BaseException, *, stored: bool | None, repeatable: bool) -> bool:
    kind = kind_of(error)
    if kind is Failure.LOST:
        return repeatable or stored is False
    return kind is Failure.CONTENDED and (repeatable or stored is False)
