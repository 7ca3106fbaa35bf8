"""Running a function on a connection, in a transaction, and again where that is safe."""

from __future__ import annotations

import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine

from agent_memory.errors import InvalidRequestError
from agent_memory.storage.sql.errors import (
    VENDOR_ERRORS,
    Failure,
    TransactionFailedError,
    is_rolled_back,
    kind_of,
)
from agent_memory.storage.sql.statements import AnyConnection

T = TypeVar("T")

_DELAYS: Final = (0.02, 0.1, 0.4, 1.0)
"""Seconds before the second, third, … attempt, each multiplied by 0.5 to 1.5 at random."""


class Transactor(ABC):
    """Runs functions of a connection, in a transaction or without one.

    Attributes:
        is_erasing: whether erased text is still in SQLite's log; see :meth:`erase_from_log`.
    """

    is_erasing: bool = False

    @abstractmethod
    def transact(
        self, work: Callable[[AnyConnection], T], *, repeatable: bool, erases: bool = False
    ) -> T:
        """Run `work` in a transaction and commit it.

        Args:
            work: may be run again after a deadlock, a serialisation failure or a lost connection.
            repeatable: whether it may also be run again when the connection was lost at the
                commit, so that it may have been stored already.
            erases: whether what it deletes is to leave a SQLite file's log (WAL) as well, by
                the next :meth:`erase_from_log`.

        Raises:
            TransactionFailedError: it failed for good.
        """

    @abstractmethod
    def read(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work`, which only reads and may be run again; one statement, hence one snapshot.

        Raises:
            TransactionFailedError: it failed for good.
        """

    def single(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work`, one statement that commits itself, and which may be run again.

        Raises:
            TransactionFailedError: it failed for good.
        """
        return self.transact(work, repeatable=True)

    def erase_from_log(self, wait: float = 0.25) -> None:
        """Empty SQLite's log, if it holds pages as they were before text was erased.

        While a reader uses what the log holds it cannot be done, and stays due
        (https://www.sqlite.org/pragma.html#pragma_wal_checkpoint).

        Args:
            wait: seconds to wait for readers.
        """

    def idle(self) -> float | None:
        """Do what is due while nothing else is to do; return when to call it again, or None."""
        return None

    def finish(self) -> None:
        """Do what is due at the end."""

    def close(self) -> None:
        """Close the connection that is kept, if one is."""


class PooledTransactor(Transactor):
    """Takes connections from an engine's pool, and tries again where that is safe.

    It is plain blocking code. For an async engine it runs inside a greenlet, where SQLAlchemy
    awaits what would block; so there is one implementation for all engines
    (https://docs.sqlalchemy.org/en/20/orm/extensions/asyncio.html#synopsis-core).

    Args:
        engine: where connections for transactions come from.
        autocommit: where those for single statements come from.
        pause: waits between attempts; called with a number of seconds.
        patience: seconds after which there is no further attempt.
    """

    def __init__(
        self,
        engine: Engine,
        autocommit: Engine,
        pause: Callable[[float], None],
        *,
        patience: float,
    ) -> None:
        self._engine = engine
        self._autocommit = autocommit
        self._pause = pause
        self._patience = patience

    def transact(
        self, work: Callable[[AnyConnection], T], *, repeatable: bool, erases: bool = False
    ) -> T:
        """Run `work` in a transaction and commit it; see :meth:`Transactor.transact`."""

        def once(connection: Connection) -> T:
            result = work(connection)
            try:
                connection.commit()
            except VENDOR_ERRORS as error:
                raise CommitFailedError(error) from error
            return result

        return self._with_retries(self._engine, once, repeatable=repeatable)

    def read(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work`, which only reads; see :meth:`Transactor.read`."""
        return self._with_retries(self._autocommit, work, repeatable=True)

    def single(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work`, one statement that commits itself; see :meth:`Transactor.single`."""

        def once(connection: Connection) -> T:
            try:
                return work(connection)
            except VENDOR_ERRORS as error:
                raise CommitFailedError(error) from error

        return self._with_retries(self._autocommit, once, repeatable=True)

    def _with_retries(
        self, engine: Engine, once: Callable[[Connection], T], *, repeatable: bool
    ) -> T:
        """Run `once` until it succeeds, fails for good, or the time is up.

        From the first commit that went unanswered on, `stored` is None: the transaction may have
        been carried out. It is then run again only if that is `repeatable`, as an append is: its
        ids are unique, so the second attempt finds what the first one stored.
        """
        stored: bool | None = False
        deadline = time.monotonic() + self._patience
        for delay in (*_DELAYS, None):
            try:
                with self._connection(engine) as connection:
                    return once(connection)
            except CommitFailedError as failed:
                error = failed.error
                if not is_rolled_back(error):
                    stored = None
            except VENDOR_ERRORS as caught:
                error = caught
            hopeless = not _may_retry(error, stored=stored, repeatable=repeatable)
            if hopeless or delay is None or time.monotonic() + delay > deadline:
                raise TransactionFailedError(error, stored=stored) from error
            self._pause(delay * random.uniform(0.5, 1.5))  # noqa: S311  jitter
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _connection(self, engine: Engine) -> Generator[Connection]:
        connection = connected(engine)
        try:
            yield connection
        except (CommitFailedError, *VENDOR_ERRORS) as failed:
            error = failed.error if isinstance(failed, CommitFailedError) else failed
            if kind_of(error) is Failure.LOST or isinstance(error, TimeoutError):
                # To close it properly would wait once more for a server that does not answer.
                connection.invalidate(error)
            raise
        finally:
            # It rolls back what is not committed. If that fails too, the first error matters more.
            with contextlib.suppress(*VENDOR_ERRORS):
                connection.close()


def connected(engine: Engine) -> Connection:
    """Return a new connection of the engine."""
    try:
        return engine.connect()
    except TypeError as error:  # what a driver says of an argument that it does not know
        raise InvalidRequestError(f"engine_options, connect_args: {error}") from error


class CommitFailedError(Exception):
    """A commit, or a statement that commits itself, failed; never leaves this package."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def _may_retry(error: BaseException, *, stored: bool | None, repeatable: bool) -> bool:
    kind = kind_of(error)
    if kind is Failure.LOST:
        return repeatable or stored is False
    return kind is Failure.CONTENDED and (repeatable or stored is False)
