"""How a function gets to a connection, a transaction, and another attempt."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection, Engine

from agent_memory.errors import InvalidRequestError
from agent_memory.storage.sql.compiling import Executor
from agent_memory.storage.sql.errors import (
    VENDOR_ERRORS,
    Failure,
    TransactionFailedError,
    is_rolled_back,
    kind_of,
    needs_reopening,
)
from agent_memory.storage.sql.sqlite_file import IDENTITY, DatabaseFile, Identity

T = TypeVar("T")

_OTHER_WAIT: Final = 0.5  # seconds, for another thread to close its connection
_ERASING_WAIT: Final = 0.25
"""Seconds that a delete waits for readers, so that its text is gone from the log as well."""
ERASING_EVERY: Final = 1.0
"""Seconds between attempts to empty SQLite's log of erased text, while somebody reads it."""

_DELAYS: Final = (0.02, 0.1, 0.4, 1.0)
"""Seconds before the second, third, … attempt, each multiplied by 0.5 to 1.5 at random."""


class Session:
    """Runs functions of a ``Connection`` on one engine.

    It is plain blocking code. For an async engine it runs inside a greenlet, where SQLAlchemy
    turns what blocks into what is awaited; so there is one implementation for all engines.

    Args:
        engine: where connections for transactions come from.
        autocommit: where those for single statements come from; by default the same.
        pause: how to wait so many seconds between attempts.
        begin: a statement that begins a transaction, where SQLAlchemy leaves that to us.
        keep: whether to keep one connection open instead of taking one from the pool each
            time; only for one thread's use.
        attempts: how often a function may be run when the failure allows it.
        patience: seconds after which there is no further attempt.
    """

    is_erasing: bool = False
    """Whether erased text is still in SQLite's log; see :meth:`erase_from_log`."""

    def __init__(
        self,
        engine: Engine,
        pause: Callable[[float], None],
        *,
        autocommit: Engine | None = None,
        begin: str | None = None,
        keep: bool = False,
        attempts: int = len(_DELAYS) + 1,
        patience: float,
    ) -> None:
        self.engine = engine
        self._autocommit = autocommit or engine
        self._pause = pause
        self._begin = begin
        self._keep = keep
        self._kept: Connection | None = None
        self._delays = _DELAYS[: attempts - 1]
        self._patience = patience

    def transact(
        self, work: Callable[[Executor], T], *, repeatable: bool, erases: bool = False
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
        return self.transact_core(work, repeatable=repeatable)

    def erase_from_log(self, wait: float = _ERASING_WAIT) -> None:
        """Empty SQLite's log, if it holds pages as they were before text was erased.

        It cannot be done while somebody reads what the log holds; then it is still due.

        Args:
            wait: seconds to wait for readers.
        """

    def single(self, work: Callable[[Executor], T]) -> T:
        """Run `work`, one statement that commits itself, and which may be run again.

        Raises:
            TransactionFailedError: it failed for good.
        """

        def once(connection: Connection) -> T:
            try:
                return work(connection)
            except VENDOR_ERRORS as error:
                raise _CommitFailedError(error) from error

        return self._persist(self._autocommit, once, repeatable=True)

    def read(self, work: Callable[[Executor], T]) -> T:
        """Run `work`, which only reads and may be run again; one statement, hence one snapshot.

        Raises:
            TransactionFailedError: it failed for good.
        """
        return self.read_core(work)

    def transact_core(self, work: Callable[[Connection], T], *, repeatable: bool) -> T:
        """Do the same for `work` that needs a whole ``Connection``, such as making tables."""

        def once(connection: Connection) -> T:
            self._start(connection)
            result = work(connection)
            try:
                connection.commit()
            except VENDOR_ERRORS as error:
                raise _CommitFailedError(error) from error
            return result

        return self._persist(self.engine, once, repeatable=repeatable)

    def read_core(self, work: Callable[[Connection], T]) -> T:
        """Do what :meth:`read` does for `work` that needs a whole ``Connection``."""
        return self._persist(self._autocommit, work, repeatable=True)

    def _persist(self, engine: Engine, once: Callable[[Connection], T], *, repeatable: bool) -> T:
        stored: bool | None = False
        deadline = time.monotonic() + self._patience
        for delay in (*self._delays, None):
            try:
                with self._connection(engine) as connection:
                    return once(connection)
            except _CommitFailedError as failed:
                error = failed.error
                if not is_rolled_back(error):
                    stored = None
            except VENDOR_ERRORS as caught:
                error = caught
            hopeless = not _again(error, stored=stored, repeatable=repeatable)
            if hopeless or delay is None or time.monotonic() + delay > deadline:
                raise TransactionFailedError(error, stored=stored) from error
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
    def _connection(self, engine: Engine) -> Generator[Connection]:
        connection = self._kept or _connected(engine)
        if self._keep:
            self._kept = connection
        try:
            yield connection
        except (_CommitFailedError, *VENDOR_ERRORS) as failed:
            error = failed.error if isinstance(failed, _CommitFailedError) else failed
            if kind_of(error) is Failure.LOST or isinstance(error, TimeoutError):
                # It would only wait once more for a server that does not answer.
                connection.invalidate(error)
            raise
        finally:
            self._put_back(connection)

    def _put_back(self, connection: Connection) -> None:
        # What is not committed is rolled back. What matters is the error that brought us here,
        # if any, not one of this.
        with contextlib.suppress(*VENDOR_ERRORS):
            if self._keep:
                connection.rollback()
            else:
                connection.close()


def _connected(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except TypeError as error:  # what a driver says of an argument that it does not know
        raise InvalidRequestError(f"engine_options, connect_args: {error}") from error


class DriverConnection:
    """A SQLite connection of the driver's, as far as statements need one.

    Args:
        connection: with transactions left to us (``isolation_level=None``).
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def exec_driver_sql(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a text; `parameters` are a list for several rows."""
        if isinstance(parameters, list):
            return self._connection.executemany(statement, cast("list[Any]", parameters))
        return self._connection.execute(statement, parameters)

    def commit(self) -> None:
        """End the transaction, if there is one."""
        self._connection.commit()

    def rollback(self) -> None:
        """Undo what is not committed."""
        self._connection.rollback()


class DriverSession(Session):
    """Runs functions on the driver's own connection to a SQLite database, in one thread.

    SQLAlchemy opens the connection and compiles the statements. What it adds to each execution
    would be a third of a lone save and of a small read, so that these go to the driver
    directly; its ``echo`` and its engine events do not see them.

    Nothing is attempted twice: SQLite's own waiting for a lock takes the place of that.

    Args:
        engine: of a SQLite URL, whose transactions SQLAlchemy does not begin.
        begin: a statement that begins a transaction.
        patience: as for :class:`Session`.
        file: what the connection opens, to be watched; None for a database in memory.

    Attributes:
        close_other: has the connection closed that another session keeps to the same file.
    """

    def __init__(
        self, engine: Engine, *, begin: str, patience: float, file: DatabaseFile | None
    ) -> None:
        super().__init__(engine, time.sleep, begin=begin, keep=True, attempts=1, patience=patience)
        self._begin_statement = begin
        self._driver: DriverConnection | None = None
        self._file = file
        self._identity: Identity = ()
        self._is_writable = True
        self._erase_by = 0.0
        self.close_other: Callable[[], Future[None]] | None = None
        self._other_closes: Future[None] | None = None

    def transact(
        self, work: Callable[[Executor], T], *, repeatable: bool, erases: bool = False
    ) -> T:
        """Run `work` in a transaction and commit it; see :meth:`Session.transact`."""
        stored: bool | None = False
        driver: DriverConnection | None = None
        try:
            driver = self._opened()
            driver.exec_driver_sql(self._begin_statement)
            result = work(driver)
            stored = None
            driver.commit()
            if self._file is not None:
                # After the commit, hence for sure: it went into a file that has its name.
                self._file.check(self._identity)
        except VENDOR_ERRORS as error:
            if stored is None and is_rolled_back(error):
                stored = False
            self._undo(driver)
            self._give_up_after(error)
            raise TransactionFailedError(error, stored=stored) from error
        except BaseException:
            self._undo(driver)
            raise
        if self._file is not None:
            self._erase_later(erases=erases)
        return result

    def read(self, work: Callable[[Executor], T]) -> T:
        """Run `work`, which only reads; see :meth:`Session.read`."""
        if self._driver and self._file and self._file.is_another(self._identity):
            # Not told: nothing was acknowledged here. What is saved in a file that was put back
            # must be read there.
            self._give_up()
        try:
            return work(self._opened())
        except VENDOR_ERRORS as error:
            self._give_up_after(error)
            raise TransactionFailedError(error, stored=False) from error
        finally:
            if not self._is_writable:
                self.close()

    def single(self, work: Callable[[Executor], T]) -> T:
        """Run `work` in a transaction: SQLite has no use for statements that commit themselves."""
        return self.transact(work, repeatable=True)

    def _erase_later(self, *, erases: bool) -> None:
        """Note that text was erased; once it is overdue, erase it from the log as well.

        Many deletions that follow each other share an attempt. A thread without a pause makes
        one all the same.
        """
        if erases and not self.is_erasing:
            self.is_erasing = True
            self._erase_by = time.monotonic() + ERASING_EVERY
        if self.is_erasing and time.monotonic() > self._erase_by:
            self.erase_from_log(wait=0)

    def erase_from_log(self, wait: float = _ERASING_WAIT) -> None:
        """Empty SQLite's log; see :meth:`Session.erase_from_log`."""
        if not self.is_erasing:
            return
        self._erase_by = time.monotonic() + ERASING_EVERY
        try:
            self.is_erasing = not self._empty_log(wait)
        except VENDOR_ERRORS as error:
            self._give_up_after(error)
        finally:
            if not self._is_writable:
                self.close()

    def _empty_log(self, wait: float) -> bool:
        run = self._opened().exec_driver_sql
        (patience,) = run("PRAGMA busy_timeout").fetchone()
        run(f"PRAGMA busy_timeout = {round(wait * 1_000)}")
        try:
            busy, _pages, _moved = run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            run(f"PRAGMA busy_timeout = {patience}")
        return not busy

    def close(self) -> None:
        """Close the connection."""
        self._driver = None
        super().close()

    @contextlib.contextmanager
    def _connection(self, engine: Engine) -> Generator[Connection]:
        self._opened()
        try:
            with super()._connection(engine) as connection:
                yield connection
        except (_CommitFailedError, *VENDOR_ERRORS) as failed:
            error = failed.error if isinstance(failed, _CommitFailedError) else failed
            if self._kept is not None and self._kept.invalidated:
                self.close()  # the driver's connection has been closed
            self._give_up_after(error)
            raise
        finally:
            if not self._is_writable:
                self.close()

    def _opened(self) -> DriverConnection:
        if self._driver is None:
            if self._kept is None:
                self._kept = self._opened_anew()
            self._driver = DriverConnection(cast("Any", self._kept.connection.driver_connection))
        return self._driver

    def _opened_anew(self) -> Connection:
        if self._other_closes is not None:
            with contextlib.suppress(TimeoutError):
                self._other_closes.result(_OTHER_WAIT)
            self._other_closes = None
        connection = _connected(self.engine)
        if self._file is not None:
            self._identity = connection.info[IDENTITY]
            # One that cannot write stays so when the file may be written again; it is not kept.
            self._is_writable = self._file.is_writable()
        return connection

    def _give_up_after(self, error: BaseException) -> None:
        if self._file is not None and needs_reopening(error):
            self._give_up()

    def _give_up(self) -> None:
        """Close the connection to a bad file; have the other one closed that has it open.

        SQLite shares what it knows of a file among a process's connections.
        """
        self.close()
        if self._file is not None and self.is_erasing and self._file.is_another(self._identity):
            self.is_erasing = False  # the log is gone, or another's
        if self.close_other is not None:
            self._other_closes = self.close_other()

    def _undo(self, driver: DriverConnection | None) -> None:
        if driver is not None:
            try:
                driver.rollback()
            except VENDOR_ERRORS:  # what matters is the error before it
                # The transaction is still open: the next read here would see what it wrote.
                self.close()


class _CommitFailedError(Exception):
    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def _again(error: BaseException, *, stored: bool | None, repeatable: bool) -> bool:
    kind = kind_of(error)
    if kind is Failure.LOST:
        return repeatable or stored is False
    return kind is Failure.CONTENDED and (repeatable or stored is False)
