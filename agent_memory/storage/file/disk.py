"""What the file store asks of the operating system: durable writes, and its errors in ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Final, Literal, TypeAlias

from agent_memory.errors import StorageUnavailableError
from agent_memory.messages import ChatKey

Durability: TypeAlias = Literal["full", "os"]
"""``"full"``: a save returns when the disk has it; ``"os"``: when the operating system has."""

_DIRECTORIES_SYNC: Final = os.name == "posix"


class UncertainError(OSError):
    """A write failed in such a way that nobody knows what the disk holds."""


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
    """Make a directory with those above it, their names on the disk."""
    missing = [path]
    while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent, durability)


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


def interrupted(key: ChatKey, error: BaseException) -> StorageUnavailableError:
    """Return the error for work of which something else than the disk made an end."""
    told = StorageUnavailableError(
        f"{error!r} ended the work on the chat of {key}; whether it was done is unknown",
        key=key,
        stored=None,
    )
    told.__cause__ = error
    return told


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
