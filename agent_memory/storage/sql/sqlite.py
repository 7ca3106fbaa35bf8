"""SQLite: the driver's own connection, and the file, private from the start and watched."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, Engine

from agent_memory.storage.sql.errors import (
    VENDOR_ERRORS,
    DatabaseFileError,
    TransactionFailedError,
    is_rolled_back,
    needs_reopening,
)
from agent_memory.storage.sql.statements import AnyConnection
from agent_memory.storage.sql.transactor import Transactor, connected

T = TypeVar("T")

Identity: TypeAlias = tuple[tuple[int, int] | None, ...]
"""Device and inode of the database and of its log (WAL)."""

IDENTITY: Final = "agent_memory_file"
"""Where a connection's ``info`` holds the identity of the file that it opened."""


_OTHER_WAIT: Final = 0.5  # seconds, for another thread to close its connection
_ERASING_WAIT: Final = 0.25
"""Seconds that a delete waits for readers, so that its text is gone from the log as well."""
ERASING_EVERY: Final = 1.0
"""Seconds between attempts to empty SQLite's log of erased text, while readers use it."""


class DatabaseFile:
    """The file that a store's URL names.

    A file that is deleted or replaced while it is open goes on without a name: SQLite notices
    nothing, and what is committed is gone with the last connection. So each commit is
    acknowledged only if the name still belongs to the file that was opened.

    Args:
        path: of the database.
        create: whether it may be made where there is none, when it is opened first.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100 - a string; the directory may change
        self._log, self._index = f"{self._path}-wal", f"{self._path}-shm"
        self._create = create

    def prepare(self) -> None:
        """Do what must be done before a connection opens the file.

        Raises:
            DatabaseFileError: it is gone, or not a regular file.
        """
        found = self._stat()
        if found is None and self._create:
            _make_private(self._path)
            found = self._stat()
        if found is None and os.path.islink(self._path):  # noqa: PTH114 - a string
            raise DatabaseFileError(f"{self._path} is a link to nothing; make what it points to")
        if found is None:
            raise DatabaseFileError(
                f"the SQLite file {self._path} is gone. Put it back, with its -wal file if there "
                "is one, and try again; or make a new store for an empty one"
            )
        if not stat.S_ISREG(found.st_mode):
            raise DatabaseFileError(
                f"{self._path} is not a regular file, and cannot be a database"
            )
        target = os.path.realpath(self._path)
        self._log, self._index = f"{target}-wal", f"{target}-shm"
        for beside in (self._log, self._index):
            _give_mode(beside, found)
        self._create = False  # from now on a missing file is one that was deleted

    def is_writable(self) -> bool:
        """Whether this process may write all of it now.

        A connection that could not write stays so for ever, and others of the process with it.
        """
        return all(map(_is_writable, (self._path, self._log, self._index)))

    def identity(self) -> Identity:
        """Say which files the names belong to now."""
        return _identity(self._path), _identity(self._log)

    def is_another(self, opened: Identity) -> bool:
        """Whether the database's name belongs to another file now, or to none."""
        return _identity(self._path) != opened[0]

    def check(self, opened: Identity) -> None:
        """Raise unless the names belong to the files that were opened.

        Raises:
            DatabaseFileError: they do not.
        """
        if self.identity() != opened:
            raise DatabaseFileError(
                f"the SQLite file {self._path}, or its -wal file, was deleted or replaced while "
                "the store was using it. The next call uses what is there then; to replace a "
                "database, close the store first, and replace the -wal file too"
            )

    def _stat(self) -> os.stat_result | None:
        try:
            return os.stat(self._path)  # noqa: PTH116 - a string
        except FileNotFoundError:
            return None


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - twice for each commit
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_writable(path: str) -> bool:
    by_effective = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, effective_ids=by_effective) or not os.path.exists(path)  # noqa: PTH110


def _give_mode(path: str, database: os.stat_result) -> None:
    """Give a file beside the database its mode, as SQLite does when it makes one.

    One that was made while the database was read-only would keep it so.
    """
    with suppress(OSError):  # there is none, or it is another user's
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_mode != database.st_mode:
            os.chmod(path, stat.S_IMODE(database.st_mode))  # noqa: PTH101 - a string


def _make_private(path: str) -> None:
    """Make an empty file that its owner alone may read; SQLite gives its -wal the same mode."""
    directory = os.path.dirname(path)  # noqa: PTH120 - a string
    if not os.path.isdir(directory):  # noqa: PTH112 - a string
        raise DatabaseFileError(
            f"the directory {directory!r} of the SQLite file does not exist; create it first"
        )
    with suppress(FileExistsError):  # another process was faster, or it is a link to nothing
        if sys.platform == "linux":
            # Without opening it: closing any descriptor of a file gives up all the locks that
            # this process has on it (https://www.sqlite.org/howtocorrupt.html, 2.2).
            os.mknod(path, 0o600 | stat.S_IFREG)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        os.chmod(path, 0o600)  # noqa: PTH101 - as above; whatever the umask took away


class SqliteConnection:
    """A SQLite connection of the driver's, as far as statements need one.

    Args:
        core: the connection of Core's that it belongs to, with transactions left to us
            (``isolation_level=None``).
    """

    def __init__(self, core: Connection) -> None:
        self.core = core
        self._connection = cast("sqlite3.Connection", core.connection.driver_connection)

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


class SqliteTransactor(Transactor):
    """Runs functions on the driver's own connection to a SQLite database, in one thread.

    SQLAlchemy opens the connection and compiles the statements. What it adds to each execution
    would be a third of a lone save and of a small read, so that these go to the driver
    directly; its ``echo`` and its engine events do not see them. What makes tables is given the
    same connection as Core's.

    Nothing is attempted twice: SQLite's own waiting for a lock takes the place of that.

    Args:
        engine: of a SQLite URL, made so that SQLAlchemy begins no transactions.
        file: what the connection opens, to be watched; None for a database in memory.

    Attributes:
        close_other: has the connection closed that another transactor keeps to the same file.
    """

    def __init__(self, engine: Engine, file: DatabaseFile | None) -> None:
        self._engine = engine
        self._connection: SqliteConnection | None = None
        self._file = file
        self._identity: Identity = ()
        self._is_writable = True
        self._erase_by = 0.0
        self.close_other: Callable[[], Future[None] | None] | None = None
        self._other_closes: Future[None] | None = None

    def transact(
        self, work: Callable[[AnyConnection], T], *, repeatable: bool, erases: bool = False
    ) -> T:
        """Run `work` in a transaction and commit it; see :meth:`Transactor.transact`."""
        stored: bool | None = False
        connection: SqliteConnection | None = None
        try:
            connection = self._connected()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            result = work(connection)
            stored = None
            connection.commit()
            if self._file is not None:
                # Only after the commit does this prove that it went into a file with that name:
                # before it, the file could still be replaced.
                self._file.check(self._identity)
        except VENDOR_ERRORS as error:
            if stored is None and is_rolled_back(error):
                stored = False
            self._roll_back(connection)
            self._drop_if_broken(error)
            raise TransactionFailedError(error, stored=stored) from error
        except BaseException:
            self._roll_back(connection)
            raise
        if self._file is not None:
            self._note_erasure(erases=erases)
        return result

    def read(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work`, which only reads; see :meth:`Transactor.read`."""
        if self._connection and self._file and self._file.is_another(self._identity):
            # No error is raised: a read acknowledges nothing. It goes to the file that has the
            # name now, which has the saves since it was put there.
            self._drop_connection()
        try:
            return work(self._connected())
        except VENDOR_ERRORS as error:
            self._drop_if_broken(error)
            raise TransactionFailedError(error, stored=False) from error
        finally:
            self._close_unless_writable()

    def _note_erasure(self, *, erases: bool) -> None:
        """Note that text was erased; once it is overdue, erase it from the log as well.

        Deletions that follow each other share an attempt. A thread that is never idle makes one
        here, when it is overdue.
        """
        if erases and not self.is_erasing:
            self.is_erasing = True
            self._erase_by = time.monotonic() + ERASING_EVERY
        if self.is_erasing and time.monotonic() > self._erase_by:
            self.erase_from_log(wait=0)

    def erase_from_log(self, wait: float = _ERASING_WAIT) -> None:
        """Empty SQLite's log; see :meth:`Transactor.erase_from_log`."""
        if not self.is_erasing:
            return
        self._erase_by = time.monotonic() + ERASING_EVERY
        try:
            self.is_erasing = not self._empty_log(wait)
        except VENDOR_ERRORS as error:
            self._drop_if_broken(error)
        finally:
            self._close_unless_writable()

    def idle(self) -> float | None:
        """Erase what a reader kept in the log, every now and then."""
        if self.is_erasing and time.monotonic() > self._erase_by:
            self.erase_from_log(wait=0)
        return ERASING_EVERY if self.is_erasing else None

    def finish(self) -> None:
        """Erase what is still in the log, and close the connection."""
        self.erase_from_log(wait=0)  # closing does not, if other processes go on
        self.close()

    def _empty_log(self, wait: float) -> bool:
        run = self._connected().exec_driver_sql
        (patience,) = run("PRAGMA busy_timeout").fetchone()
        run(f"PRAGMA busy_timeout = {round(wait * 1_000)}")
        try:
            busy, _pages, _moved = run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            run(f"PRAGMA busy_timeout = {patience}")
        return not busy

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*VENDOR_ERRORS):  # it is given up in any case
                connection.core.close()

    def _close_unless_writable(self) -> None:
        # One that cannot write stays so when the file may be written again; it is not kept.
        if not self._is_writable:
            self.close()

    def _connected(self) -> SqliteConnection:
        if self._connection is None:
            if self._other_closes is not None:
                with suppress(TimeoutError):
                    self._other_closes.result(_OTHER_WAIT)
                self._other_closes = None
            core = connected(self._engine)
            if self._file is not None:
                self._identity = core.info[IDENTITY]
                self._is_writable = self._file.is_writable()
            self._connection = SqliteConnection(core)
        return self._connection

    def _drop_if_broken(self, error: BaseException) -> None:
        if self._file is not None and needs_reopening(error):
            self._drop_connection()
        elif self._connection is not None and self._connection.core.invalidated:
            self.close()  # SQLAlchemy has closed the driver's connection

    def _drop_connection(self) -> None:
        """Close the connection to a bad file; have the other one closed that has it open.

        SQLite shares what it knows of a file among a process's connections.
        """
        self.close()
        if self._file is not None and self.is_erasing and self._file.is_another(self._identity):
            self.is_erasing = False  # the log is gone, or another's
        if self.close_other is not None:
            self._other_closes = self.close_other()

    def _roll_back(self, connection: SqliteConnection | None) -> None:
        if connection is not None:
            try:
                connection.rollback()
            except VENDOR_ERRORS:  # what matters is the error before it
                # The transaction is still open: the next read here would see what it wrote.
                self.close()
