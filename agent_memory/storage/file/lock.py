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
from collections.abc import Callable, Generator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from io import FileIO
from pathlib import Path
from typing import Any, Final, Literal, overload

import attrs

from agent_memory.errors import StorageUnavailableError
from agent_memory.messages import ChatKey
from agent_memory.storage._engine.backoff import Backoff
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


@attrs.define
class ChatLock:
    """How chats are locked.

    Args:
        timeout: seconds to wait for a lock that another process holds.
        durability: of directories that are made.

    Attributes:
        waiting: entered while a lock is waited for, so that others can work meanwhile.
    """

    timeout: float
    durability: Durability
    waiting: Callable[[], AbstractContextManager[None]] = attrs.field(
        default=nullcontext, init=False
    )

    @overload
    def acquire(
        self, paths: ChatPaths, key: ChatKey, *, create: Literal[True]
    ) -> AbstractContextManager[FileIO]: ...

    @overload
    def acquire(
        self, paths: ChatPaths, key: ChatKey, *, create: Literal[False]
    ) -> AbstractContextManager[FileIO | None]: ...

    @contextmanager
    def acquire(self, paths: ChatPaths, key: ChatKey, *, create: bool) -> Generator[Any]:
        """Hold a chat's lock, with its file open for reading and writing.

        Args:
            paths: the chat's files.
            key: the chat, for errors.
            create: whether to make a file where there is none; else None is given.

        Raises:
            StorageUnavailableError: another process held the lock for too long.
            OSError: the file cannot be opened.
        """
        with ExitStack() as opened:
            if LOCKS_BESIDE and (create or Path(paths.log).exists()):
                beside = self._open(paths.lock, paths, create=True)
                opened.callback(release, beside)
                self._wait_for(beside, paths, key)
            while (file := self._open(paths.log, paths, create=create)) is not None:
                opened.callback(release, file)
                if LOCKS_BESIDE:
                    break
                self._wait_for(file, paths, key)
                # A trim or purge by another process may have replaced or removed the file
                # while its lock was waited for; what is written to it then is lost.
                if _is_in_place(file, paths):
                    break
                release(file)
            yield file

    @overload
    def _open(self, path: str, paths: ChatPaths, *, create: Literal[True]) -> FileIO: ...

    @overload
    def _open(self, path: str, paths: ChatPaths, *, create: bool) -> FileIO | None: ...

    def _open(self, path: str, paths: ChatPaths, *, create: bool) -> FileIO | None:
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                return open_to_write(path)
            if not create:
                return None
            try:
                return make_file(path)
            except FileExistsError:
                continue  # another process was faster
            except FileNotFoundError:
                make_directory(paths.directory, self.durability)
        raise FileNotFoundError(
            errno.ENOENT, "its directory vanishes as often as it is made", path
        )

    def _wait_for(self, file: FileIO, paths: ChatPaths, key: ChatKey) -> None:
        if try_lock(file.fileno()):
            return
        with self.waiting():
            backoff = Backoff(self.timeout, _LONGEST_PAUSE, first=_FIRST_PAUSE)
            while not try_lock(file.fileno()):
                if backoff.expired:
                    raise StorageUnavailableError(
                        f"the lock on {paths.log} is held by another process for "
                        f"{self.timeout} s; nothing was done. Look for one that hangs, or raise "
                        "lock_timeout",
                        key=key,
                    )
                time.sleep(backoff.next_delay())


def release(file: FileIO) -> None:
    """Give the lock on a file back, and close it."""
    if not file.closed:
        # What was synced is stored, whatever closing says.
        with suppress(OSError):
            # A process forked meanwhile has the file open too: closing it is not enough.
            unlock(file.fileno())
        with suppress(OSError):
            file.close()


def _is_in_place(file: FileIO, paths: ChatPaths) -> bool:
    """Whether a trim or purge has left the file where it was opened."""
    with suppress(FileNotFoundError):
        mine, theirs = os.fstat(file.fileno()), os.stat(paths.log)  # noqa: PTH116 - a string
        return (mine.st_ino, mine.st_dev) == (theirs.st_ino, theirs.st_dev)
    return False
