"""What the file store asks of the operating system: durable writes, and its errors in ours."""

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
"""``"full"``: a save returns when the disk has it; ``"os"``: when the operating system has."""

_CAREFUL: Final = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO is open at once, and then refused
    | getattr(os, "O_BINARY", 0)
)
_IS_LINK: Final = (errno.ELOOP, errno.EMLINK)  # what O_NOFOLLOW answers: the latter on FreeBSD
_DIRECTORIES_SYNC: Final = os.name == "posix"


_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700


class UncertainError(OSError):
    """A write failed in such a way that nobody knows what the disk holds."""


class NotRegularError(OSError):
    """A store's file or directory is a link, a FIFO or a device, and is left alone."""


def open_to_read(path: str) -> FileIO:
    """Open one of a store's files.

    Raises:
        NotRegularError: it is no regular file, or lies behind a link.
        OSError: it cannot be opened.
    """
    return FileIO(path, "r", opener=descriptor_to_read)


def descriptor_to_read(path: str, _flags: int) -> int:
    """Open one of a store's files as :func:`open_to_read` does; an opener for ``open``."""
    return _opened(path, os.O_RDONLY)


def open_to_write(path: str) -> FileIO:
    """Open one of a store's files for reading and writing; see :func:`open_to_read`."""
    return FileIO(_opened(path, os.O_RDWR), "r+")


def make_file(path: str) -> FileIO:
    """Make a file that its owner alone may read, and open it for reading and writing.

    Raises:
        FileExistsError: there is something of that name, be it a link to nothing.
        NotRegularError: it would lie behind a link.
    """
    file = FileIO(_opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+")
    if hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), _FILE_MODE)  # whatever the umask took away
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
        raise _not_regular(path, "no regular file")
    return descriptor


@lru_cache(4096)  # it is asked for at every call
def _directories_of(path: str) -> tuple[str, str]:
    """Return the session's and the user's directory; the store's own may be a link."""
    session = os.path.dirname(path)  # noqa: PTH120 - strings
    return session, os.path.dirname(session)  # noqa: PTH120


def refuse_links(*directories: str | Path) -> None:
    """Raise for a directory that is a link: what lies behind it is not the store's.

    Raises:
        NotRegularError: one is.
    """
    for directory in directories:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.lstat(directory).st_mode):
                raise _not_regular(str(directory), "a symbolic link")


def _not_regular(path: str, what: str) -> NotRegularError:
    return NotRegularError(errno.ELOOP, f"it is {what}, which a store leaves alone", path)


def sync_file(descriptor: int, durability: Durability) -> None:
    """Bring a file's bytes and length to the disk."""
    if durability == "os":
        return
    if sys.platform == "darwin":
        # There fsync hands the bytes to the drive, which may keep them in its cache: fsync(2).
        import fcntl  # noqa: PLC0415 - this platform alone

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_directory(path: Path, durability: Durability) -> None:
    """Bring the names in a directory to the disk, where the platform can."""
    if durability == "os" or not _DIRECTORIES_SYNC:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, durability: Durability) -> None:
    """Make a directory with those above it, its owner's alone, their names on the disk."""
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
            directory.chmod(_DIRECTORY_MODE)  # whatever the umask took away
        sync_directory(directory.parent, durability)


def end_at(file: FileIO, end: int) -> None:
    """Have a file end at a byte behind a line: cut what follows, or write the end it lacks."""
    if os.fstat(file.fileno()).st_size < end:
        file.seek(end - 1)
        write_all(file, b"\n")
    else:
        file.truncate(end)


def append_bytes(file: FileIO, end: int, data: bytes | bytearray, durability: Durability) -> None:
    """Write behind byte `end`, all or nothing, and bring it to the disk.

    Raises:
        UncertainError: it failed, and what was written could not be taken back for sure.
        OSError: it failed; the file ends at `end` as before.
    """
    write_behind(file, end, data)
    sync_behind(file, end, durability)


def write_behind(file: FileIO, end: int, data: bytes | bytearray) -> None:
    """Do the first half of :func:`append_bytes`."""
    try:
        file.seek(end)
        write_all(file, data)
    except OSError as error:
        _take_back(file, end, error)
        raise


def sync_behind(file: FileIO, end: int, durability: Durability) -> None:
    """Do the second half of :func:`append_bytes`."""
    try:
        sync_file(file.fileno(), durability)
    except OSError as error:
        # The kernel may have dropped the bytes and forgotten that they were ever dirty.
        _take_back(file, end, error)
        raise UncertainError(*error.args) from error


def _take_back(file: FileIO, end: int, error: OSError) -> None:
    try:
        file.truncate(end)
    except OSError:
        raise UncertainError(*error.args) from error


def write_all(file: FileIO, data: bytes | bytearray) -> None:
    """Write all of `data`, which the system may take in parts."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


@contextmanager
def os_errors(key: ChatKey | None, doing: str) -> Generator[None]:
    """Translate the operating system's errors.

    Args:
        key: the chat concerned.
        doing: what was being done, for the message.
    """
    try:
        yield
    except OSError as error:
        raise unavailable(error, key, doing) from error


def unavailable(error: OSError, key: ChatKey | None, doing: str) -> StorageUnavailableError:
    """Return our error for one of the operating system's."""
    chat = "" if key is None else f" of {key}"
    uncertain = isinstance(error, UncertainError)
    ours = StorageUnavailableError(
        f"{doing}{chat} failed: {error}. Free space, or check the directory and its permissions, "
        "then try again",
        key=key,
        stored=None if uncertain else False,
    )
    ours.__cause__ = error.__cause__ if uncertain else error
    return ours
