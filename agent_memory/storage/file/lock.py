"""The lock that serializes writers of one chat across processes.

The chat's own file is locked (``flock``), so no lock file is needed. A trim replaces that file,
so a writer checks after locking that the path still leads to the file it opened. Windows
cannot replace an open file; there a separate lock file is used.
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

_FIRST_PAUSE: Final = 0.0002  # seconds; a lock is usually held for one write and fsync
_LONGEST_PAUSE: Final = 0.01

if sys.platform == "win32":  # pragma: no cover - another platform
    import msvcrt

    _FAR: Final = 1 << 40  # a locked byte cannot be read, so lock one past any content

    def try_lock(descriptor: int) -> bool:
        """Try to take the lock, without waiting."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Release the lock."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        with suppress(OSError):  # closing it does that too
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def nobody_writes(descriptor: int) -> bool:  # noqa: ARG001
        """Whether no writer holds the lock; unknown here, where another file is locked."""
        return False

else:
    import fcntl

    def try_lock(descriptor: int) -> bool:
        """Try to take the lock, without waiting."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Release the lock."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def nobody_writes(descriptor: int) -> bool:
        """Whether no writer holds the lock."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return True


LOCKS_BESIDE: Final = sys.platform == "win32"
"""Whether a separate file is locked, and a file must be closed before it is replaced."""

_ATTEMPTS: Final = 100  # to open a file while concurrent purges remove its directory


@attrs.define
class ChatLock:
    """Locks chats.

    Args:
        timeout: seconds to wait for a lock held by another process.
        durability: of the directories it creates.

    Attributes:
        waiting: a context entered while waiting, so that another thread can stand in.
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
        """Lock a chat and yield its file, open for reading and writing.

        Args:
            paths: the chat's files.
            key: the chat, for errors.
            create: whether to create a missing file; otherwise None is yielded for it.

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
                # While waiting, another process may have trimmed or purged the chat: the locked
                # file then has no name any more, and whatever is written to it is lost.
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
            errno.ENOENT, "its directory is removed each time it is created", path
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
    """Release the lock on a file and close it."""
    if not file.closed:
        # What was flushed is stored, even if closing fails.
        with suppress(OSError):
            # A process that was forked since shares the lock: closing this descriptor alone would
            # leave it held (https://man7.org/linux/man-pages/man2/flock.2.html).
            unlock(file.fileno())
        with suppress(OSError):
            file.close()


def _is_in_place(file: FileIO, paths: ChatPaths) -> bool:
    """Whether the path still leads to this file, as a trim or purge may have changed."""
    with suppress(FileNotFoundError):
        mine, theirs = os.fstat(file.fileno()), os.stat(paths.log)  # noqa: PTH116 - a string
        return (mine.st_ino, mine.st_dev) == (theirs.st_ino, theirs.st_dev)
    return False
