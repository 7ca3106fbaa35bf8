"""The lock on one chat that keeps processes apart.

A chat's own file is locked, so that no second file lies beside it; a trim replaces that file,
so whoever got the lock looks whether it is still the one in place. Windows cannot replace a
file that is open, so there a file beside it is locked.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from typing import Final

import attrs

from agent_memory.errors import StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.storage.file.directory import ChatPaths
from agent_memory.storage.file.disk import (
    Durability,
    make_directory,
    make_file,
    open_to_write,
)

_FIRST_PAUSE: Final = 0.0002  # seconds; a held lock is free again after one write to the disk
_LONGEST_PAUSE: Final = 0.01

if sys.platform == "win32":  # pragma: no cover - another platform
    import msvcrt

    _FAR: Final = 1 << 40  # a locked byte cannot be read, so one that is never there

    def try_lock(descriptor: int) -> bool:
        """Take the lock if it is free."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Give the lock back."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        with suppress(OSError):  # closing it does that too
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def nobody_writes(descriptor: int) -> bool:  # noqa: ARG001
        """Whether no writer is at work; not known here, where another file is locked."""
        return False

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Take the lock if it is free."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Give the lock back."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def nobody_writes(descriptor: int) -> bool:
        """Whether no writer is at work."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return True


LOCKS_BESIDE: Final = sys.platform == "win32"
"""Whether another file is locked, and a file must be closed before it is replaced."""

_ATTEMPTS: Final = 100  # of opening a file whose directory another process's purge removes


@attrs.frozen
class ChatLock:
    """How chats are locked.

    Args:
        timeout: seconds to wait for a lock.
        durability: of directories that are made.
    """

    timeout: float
    durability: Durability

    @contextmanager
    def hold(self, paths: ChatPaths, key: ChatKey) -> Generator[FileIO]:
        """Hold a chat's lock, and its file, made if need be, open for reading and writing.

        Raises:
            StorageUnavailableError: another process kept the lock for so long.
            OSError: the file cannot be opened.
        """
        with ExitStack() as opened:
            self._lock_beside(opened, paths, key)
            file = _created(paths.log, paths, self.durability)
            while not self._is_mine(opened, file, paths, key):
                release(file)
                file = _created(paths.log, paths, self.durability)
            yield file

    def take_free(self, paths: ChatPaths) -> FileIO | None:
        """Return the chat's file with its lock held, to be given to :func:`release`.

        It never waits and makes nothing: None if there is no file, or another holds its lock.

        Raises:
            OSError: the file cannot be opened.
        """
        file = None if LOCKS_BESIDE else _existing(paths.log)
        if file is None:
            return None
        try:
            if try_lock(file.fileno()) and _is_in_place(file, paths):
                return file
        except BaseException:
            release(file)
            raise
        release(file)
        return None

    @contextmanager
    def hold_existing(self, paths: ChatPaths, key: ChatKey) -> Generator[FileIO | None]:
        """Do the same if the chat has a file; else give None and make nothing."""
        with ExitStack() as opened:
            file = _existing(paths.log)
            if file is not None and LOCKS_BESIDE:
                file.close()
                self._lock_beside(opened, paths, key)
                file = _existing(paths.log)
            while file is not None and not self._is_mine(opened, file, paths, key):
                release(file)
                file = _existing(paths.log)
            yield file

    def _lock_beside(self, opened: ExitStack, paths: ChatPaths, key: ChatKey) -> None:
        if LOCKS_BESIDE:
            beside = _created(paths.lock, paths, self.durability)
            opened.callback(release, beside)
            _wait_for(beside, paths, key, self.timeout)

    def _is_mine(self, opened: ExitStack, file: FileIO, paths: ChatPaths, key: ChatKey) -> bool:
        opened.callback(release, file)
        if LOCKS_BESIDE:
            return True
        _wait_for(file, paths, key, self.timeout)
        return _is_in_place(file, paths)


def release(file: FileIO) -> None:
    """Give the lock on a file back, and close it."""
    if not file.closed:
        # What was synced is stored, whatever closing says.
        with suppress(OSError):
            # A process forked meanwhile has the file open too: closing it is not enough.
            unlock(file.fileno())
        with suppress(OSError):
            file.close()


def _existing(path: str) -> FileIO | None:
    try:
        return open_to_write(path)
    except FileNotFoundError:
        return None


def _created(path: str, paths: ChatPaths, durability: Durability) -> FileIO:
    for _ in range(_ATTEMPTS):
        file = _existing(path)
        if file is not None:
            return file
        try:
            return make_file(path)
        except FileExistsError:
            continue  # another process was faster
        except FileNotFoundError:
            make_directory(paths.directory, durability)
    raise FileNotFoundError(errno.ENOENT, "its directory vanishes as often as it is made", path)


def _wait_for(file: FileIO, paths: ChatPaths, key: ChatKey, timeout: float) -> None:
    if try_lock(file.fileno()):
        return
    deadline, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while not try_lock(file.fileno()):
        if time.monotonic() > deadline:
            raise StorageUnavailableError(
                f"the lock on {paths.log} is held by another process for {timeout} s; nothing "
                "was done. Look for one that hangs, or raise lock_timeout",
                key=key,
            )
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _is_in_place(file: FileIO, paths: ChatPaths) -> bool:
    """Whether a trim or purge has left the file where it was opened."""
    with suppress(FileNotFoundError):
        mine, theirs = os.fstat(file.fileno()), os.stat(paths.log)  # noqa: PTH116 - a string
        return (mine.st_ino, mine.st_dev) == (theirs.st_ino, theirs.st_dev)
    return False
