"""Durable writes, safe opening and error translation on top of the operating system."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Final, Literal, TypeAlias

from agent_memory.errors import StorageUnavailableError
from agent_memory.messages import ChatKey

Durability: TypeAlias = Literal["full", "os"]
"""``"full"``: a save returns once it is on disk; ``"os"``: once the operating system has it."""

_CAREFUL: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would block; it is rejected after fstat
    | getattr(os, "O_BINARY", 0)
)
_IS_LINK: Final = (errno.ELOOP, errno.EMLINK)  # O_NOFOLLOW on a link; EMLINK is FreeBSD's
_DIRECTORIES_SYNC: Final = os.name == "posix"


_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700


class UncertainError(OSError):
    """A write failed and the state of the file on disk is unknown."""


class NotRegularError(OSError):
    """A path inside the store is a link, a FIFO or a device, and is refused."""


def open_to_read(path: str) -> FileIO:
    """Open a file of the store for reading.

    Raises:
        NotRegularError: it is not a regular file, or one of its directories is a link.
        OSError: it cannot be opened.
    """
    return FileIO(path, "r", opener=descriptor_to_read)


def descriptor_to_read(path: str, _flags: int) -> int:
    """Open a file as :func:`open_to_read` does and return its descriptor; an ``opener``."""
    return _opened(path, os.O_RDONLY)


def open_to_write(path: str) -> FileIO:
    """Open a file of the store for reading and writing; see :func:`open_to_read`."""
    return FileIO(_opened(path, os.O_RDWR), "r+")


def make_file(path: str) -> FileIO:
    """Create a file with mode 0600 and open it for reading and writing.

    Raises:
        FileExistsError: the name is taken, even by a dangling link.
        NotRegularError: one of its directories is a link.
    """
    file = FileIO(_opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+")
    if hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), _FILE_MODE)  # open() applies the umask
    return file


def _opened(path: str, flags: int) -> int:
    refuse_links(*_directories_of(path))
    try:
        descriptor = os.open(path, flags | _CAREFUL, _FILE_MODE)
    except OSError as error:
        if error.errno in _IS_LINK:
            raise _not_regular(path, "a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(path, "not a regular file")
    return descriptor


@lru_cache(4096)  # called for every open
def _directories_of(path: str) -> tuple[str, str]:
    """Return the session's and the user's directory; the root itself may be a link."""
    session = os.path.dirname(path)  # noqa: PTH120 - strings
    return session, os.path.dirname(session)  # noqa: PTH120


def refuse_links(*directories: str | Path) -> None:
    """Refuse directories that are links: their contents do not belong to the store.

    Raises:
        NotRegularError: one of them is a link.
    """
    for directory in directories:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.lstat(directory).st_mode):
                raise _not_regular(str(directory), "a symbolic link")


def _not_regular(path: str, what: str) -> NotRegularError:
    return NotRegularError(errno.ELOOP, f"it is {what}, which a store leaves alone", path)


def sync_file(descriptor: int, durability: Durability) -> None:
    """Flush a file's content and length to disk."""
    if durability == "os":
        return
    if sys.platform == "darwin":
        # On macOS fsync leaves the data in the drive's cache; see its fsync(2).
        import fcntl  # noqa: PLC0415 - this platform alone

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_directory(path: Path, durability: Durability) -> None:
    """Flush a directory's entries to disk, on platforms that support it.

    Flushing a file does not flush its name (https://man7.org/linux/man-pages/man2/fsync.2.html).
    """
    if durability == "os" or not _DIRECTORIES_SYNC:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, durability: Durability) -> None:
    """Create a directory and its missing parents with mode 0700, and flush their names."""
    missing = [path]
    while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        try:
            directory.mkdir(_DIRECTORY_MODE)
        except FileExistsError:
            if not directory.is_dir():
                raise
        else:
            directory.chmod(_DIRECTORY_MODE)  # mkdir() applies the umask
        sync_directory(directory.parent, durability)


def end_at(file: FileIO, end: int) -> None:
    """Make a file end at `end`: truncate it, or add the newline that its last line lacks."""
    if os.fstat(file.fileno()).st_size < end:
        file.seek(end - 1)
        write_all(file, b"\n")
    else:
        file.truncate(end)


def append_bytes(file: FileIO, end: int, data: bytes | bytearray, durability: Durability) -> None:
    """Write at byte `end`, all or nothing, and flush.

    Raises:
        UncertainError: it failed, and the write may not have been undone.
        OSError: it failed; the file still ends at `end`.
    """
    write_or_undo(file, end, data)
    sync_or_undo(file, end, durability)


def write_or_undo(file: FileIO, end: int, data: bytes | bytearray) -> None:
    """Write at byte `end`; if that fails, truncate the file to `end` again."""
    try:
        file.seek(end)
        write_all(file, data)
    except OSError as error:
        _undo_write(file, end, error)
        raise


def sync_or_undo(file: FileIO, end: int, durability: Durability) -> None:
    """Flush what was written at byte `end`; if that fails, truncate the file to `end` again."""
    try:
        sync_file(file.fileno(), durability)
    except OSError as error:
        # The kernel may have dropped the pages and marked them clean, so that a second fsync
        # succeeds without writing them. https://wiki.postgresql.org/wiki/Fsync_Errors
        _undo_write(file, end, error)
        raise UncertainError(*error.args) from error


def _undo_write(file: FileIO, end: int, error: OSError) -> None:
    try:
        file.truncate(end)
    except OSError:
        raise UncertainError(*error.args) from error


def write_all(file: FileIO, data: bytes | bytearray) -> None:
    """Write all of `data`: a raw write may take only a part of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


@contextmanager
def os_errors(key: ChatKey | None, doing: str) -> Generator[None]:
    """Translate ``OSError`` to ``StorageUnavailableError``.

    Args:
        key: the chat concerned, if it is one.
        doing: the operation, for the message.
    """
    try:
        yield
    except OSError as error:
        chat = "" if key is None else f" of {key}"
        uncertain = isinstance(error, UncertainError)
        raise StorageUnavailableError(
            f"{doing}{chat} failed: {error}. Free space, or check the directory and its "
            "permissions, then try again",
            key=key,
            stored=None if uncertain else False,
        ) from (error.__cause__ if uncertain else error)
