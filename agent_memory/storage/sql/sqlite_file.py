"""The file of a SQLite database: private from the start, and watched while it is open."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

Identity: TypeAlias = tuple[tuple[int, int] | None, ...]
"""Device and inode of the database and of its log (WAL)."""

IDENTITY: Final = "agent_memory_file"
"""Where a connection's ``info`` holds the identity of the file that it opened."""


class DatabaseFileError(OSError):
    """The file is not there, is another one than was opened, or is none."""


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
            DatabaseFileError: it is gone, or no regular file.
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
                "is one, and try again; or open the store anew for an empty one"
            )
        if not stat.S_ISREG(found.st_mode):
            raise DatabaseFileError(f"{self._path} is no regular file, and cannot be a database")
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
    with suppress(FileExistsError):  # another process was faster, or it is a link to nothing
        if sys.platform == "linux":
            # Without opening it: closing any descriptor of a file gives up all the locks that
            # this process has on it (https://www.sqlite.org/howtocorrupt.html, 2.2).
            os.mknod(path, 0o600 | stat.S_IFREG)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        os.chmod(path, 0o600)  # noqa: PTH101 - as above; whatever the umask took away
